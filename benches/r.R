# Budgets of the R package, on a release build: `make bench-r`.
#
#   library(resource.tracker)    under 150 ms, median of fresh R processes
#   ResourceTracker$new()        under 5 ms, for the first of a session and for the median
#   R's own work                 at most 5 % slower while a tracker takes 100 samples a second
#
# Times are wall-clock times; a busy machine makes them longer.

Sys.setenv(RESOURCE_TRACKER_OFFLINE = "1")
missed <- character()

report <- function(what, found, budget, unit) {
  verdict <- if (found <= budget) "ok" else "MISSED"
  if (found > budget) missed <<- c(missed, what)
  cat(sprintf("%-46s %8.2f %s  (budget %g)  %s\n", what, found, unit, budget, verdict))
}

# Times a line in a new R process, in ms. The line is not in a function, which R would compile while it is timed.
fresh <- function(before, line) {
  program <- sprintf(
    "%s; before <- Sys.time(); %s; after <- Sys.time(); cat(1000 * as.numeric(after - before, units = 'secs'))",
    before, line
  )
  as.numeric(system2(file.path(R.home("bin"), "Rscript"), c("--vanilla", "-e", shQuote(program)), stdout = TRUE))
}
package <- "library(resource.tracker)"
start <- "tracker <- ResourceTracker$new()"
report("library(resource.tracker)", median(replicate(9, fresh("invisible()", package))), 150, "ms")
report("ResourceTracker$new(), first of a session", median(replicate(9, fresh(package, start))), 5, "ms")

library(resource.tracker)
elapsed_ms <- function(code) {
  before <- as.numeric(Sys.time())
  code
  1000 * (as.numeric(Sys.time()) - before)
}
starts <- replicate(50, {
  took <- elapsed_ms(tracker <- ResourceTracker$new())
  tracker$cleanup()
  took
})
report("ResourceTracker$new(), median of 50", median(starts), 5, "ms")

# Rounds with and without a tracker take turns, so that a slow phase of the machine affects both. The median ignores
# rounds that another process interrupted.
numbers <- runif(2e4)
round_ms <- function() elapsed_ms(sort(numbers))
invisible(replicate(200, round_ms()))
alone <- tracked <- numeric()
samples <- 0
for (turn in 1:10) {
  alone <- c(alone, replicate(200, round_ms()))
  tracker <- ResourceTracker$new(interval = 0.01, discover_cloud = FALSE)
  tracked <- c(tracked, replicate(200, round_ms()))
  tracker$stop()
  samples <- samples + tracker$n_samples
}
stopifnot(samples >= 10 * 3) # the bench measures work beside samples, not beside an idle thread
report("R's work beside a tracker, of its time alone", 100 * median(tracked) / median(alone), 105, "%")

if (length(missed)) stop("missed: ", paste(missed, collapse = ", "), call. = FALSE)
