# Limits of the system: no call of a tracker may end R, and a tracker that cannot record warns.

# Runs a program in which `limit()` sets a resource limit of this R process, and `said()` returns a warning or an error.
run_limited <- function(program) {
  output <- run_program(c(
    "library(resource.tracker)",
    "limit <- function(name, value) stopifnot(system(sprintf('prlimit --pid %d --%s=%s', Sys.getpid(), name, value)) == 0)",
    "said <- function(call) tryCatch({ call; 'nothing' }, condition = conditionMessage)",
    program
  ))
  paste(output, collapse = "\n")
}

test_that("a write past the limit of file sizes is an error, and does not end R", {
  for (size in c(0, 8000)) {
    output <- run_limited(c(
      sprintf("size <- %d", size),
      "limit('fsize', size)",
      "tracker <- suppressWarnings(ResourceTracker$new(interval = 0.01, discover_cloud = FALSE))",
      "tracker$wait_for_samples(3 + size %/% 200, timeout = 30)",
      "suppressWarnings(tracker$stop())",
      "stopifnot(tracker$stats()$process_memory$max > 0)",
      "invisible(said(tracker$dump(tempfile())))",
      "file <- tempfile()",
      "cat(said(Report$new(strrep('x', 10000))$save(file)), file.exists(file), '')",
      "status <- readLines('/proc/self/status')",
      "sets <- strtoi(substr(sub('.*\t', '', grep('^(SigPnd|ShdPnd|SigBlk)', status, value = TRUE)), 9, 16), 16)",
      "cat(bitwAnd(sets, bitwShiftL(1, 24)))"
    ))
    expect_match(output, "cannot write `.*`: File too large .* FALSE 0 0 0$")
  }
})

test_that("R without free file descriptors has a tracker without data and a warning", {
  output <- run_limited(c(
    "tracker <- ResourceTracker$new(interval = 0.05, autostart = FALSE, discover_cloud = FALSE)",
    # The soft limit only.
    "limit('nofile', '3:')",
    "text <- said(tracker$start())",
    "suppressWarnings(tracker$start())",
    "tracker$stop()$cleanup()",
    "cat(text, tracker$running, tracker$n_samples, said(tracker$stats()))"
  ))
  expect_match(output, "Too many open files.*; nothing is recorded FALSE 0 No metrics collected")
})
