# Workers of future: processes of a cluster (multisession) and forked children (multicore).

future_program <- '
options(warn = 2)
library(resource.tracker)
burn <- function(seconds) {
  cpu <- function() sum(proc.time()[c("user.self", "sys.self")])
  end <- cpu() + seconds
  while (cpu() < end) sum(sqrt(seq_len(1e4)))
  Sys.getpid()
}
kind <- commandArgs(trailingOnly = TRUE)
work <- function() {
  future::plan(kind, workers = 2)
  workers <- lapply(1:2, function(worker) future::future(burn(0.5)))
  pids <- vapply(workers, future::value, 1L)
  future::plan("sequential")
  pids
}
pids <- track(work(), interval = 0.05, discover_cloud = FALSE)
rows <- attr(pids, "tracker")$process_metrics
cat(length(setdiff(pids, Sys.getpid())), max(rows$children), sum(rows$utime, rows$stime))
'

for (plan in c("multisession", "multicore")) {
  test_that(paste("workers of future are part of the job, without warnings:", plan), {
    file <- tempfile(fileext = ".R")
    on.exit(unlink(file))
    writeLines(future_program, file)
    output <- system2(file.path(R.home("bin"), "Rscript"), c(file, plan), stdout = TRUE, stderr = TRUE)
    expect_length(output, 1)
    figures <- as.numeric(strsplit(output, " ")[[1]])
    expect_identical(figures[1], 2)
    expect_gte(figures[2], 2)
    expect_gte(figures[3], 0.98)
  })
}
