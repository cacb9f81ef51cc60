# The same as host.py, in R: `Rscript host.R SECONDS`.
work <- function() {
  total <- 0
  for (number in 1:5000) total <- total + number
}
spins <- function(seconds) {
  end <- as.numeric(Sys.time()) + seconds
  found <- numeric()
  while ((before <- as.numeric(Sys.time())) < end) {
    work()
    found[[length(found) + 1]] <- as.numeric(Sys.time()) - before
  }
  found
}
memory_kib <- function() {
  lines <- readLines("/proc/self/smaps_rollup")
  as.numeric(gsub("\\D", "", grep("^Pss:", lines, value = TRUE)))
}
seconds <- as.numeric(commandArgs(TRUE))
spins(0.5) # R compiles the functions
alone <- spins(seconds)
before <- memory_kib()
tracker <- resource.tracker::ResourceTracker$new(discover_cloud = FALSE)
spins(0.5)
tracked <- spins(seconds)
list_of <- function(values) paste0("[", paste(sprintf("%.9f", values), collapse = ","), "]")
cat(sprintf('\n{"alone":%s,"tracked":%s,"added_kib":%.0f}\n', list_of(alone), list_of(tracked), memory_kib() - before))
