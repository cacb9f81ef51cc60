# The CPU time of R's own thread: that of the process has the tracker's thread too.
thread_seconds <- function() scan(sprintf("/proc/self/task/%d/schedstat", Sys.getpid()), quiet = TRUE)[1] / 1e9

peak_kib <- function() {
  line <- grep("^VmHWM", readLines("/proc/self/status"), value = TRUE)
  as.numeric(gsub("[^0-9]", "", line))
}

use <- function(cpu_s, idle_s, mib) {
  cat("5", file = "/proc/self/clear_refs")
  began <- proc.time()[["elapsed"]]
  before <- thread_seconds()
  pages <- rep(1, mib * 2^17)
  Sys.sleep(idle_s)
  while (thread_seconds() - before < cpu_s) sum(sqrt(seq_len(1e4)))
  highest <- peak_kib()
  rm(pages)
  gc()
  c(seconds = proc.time()[["elapsed"]] - began, cpu_seconds = thread_seconds() - before, memory_peak_kib = highest)
}

test_that("usage of three phases is what the session measured", {
  skip_on_os(c("mac", "windows")) # what a thread used is read from /proc
  gc()
  tracker <- ResourceTracker$new(discover_cloud = FALSE)
  truth <- list(load = tracker$phase("load", use(0.8, 1.4, 400)))
  tracker$mark("train")
  truth$train <- use(2.2, 0, 200)
  truth$save <- tracker$phase("save", use(0.5, 2, 250))
  tracker$stop()
  phases <- tracker$phases()
  expect_setequal(phases$name, c("start", "load", "train", "save"))
  # Beside 5 %: R around what `use` measures.
  slack <- c(seconds = 0.1, cpu_seconds = 0.02, memory_peak_kib = 0)
  for (name in names(truth)) {
    for (figure in names(slack)) {
      found <- phases[phases$name == name, figure]
      true <- truth[[name]][[figure]]
      expect_lt(abs(found - true), 0.05 * true + slack[[figure]], label = paste(name, figure, found, true))
    }
  }
  expect_equal(phases$times[phases$name == "train"], 2)
  expect_equal(ResourceTracker$loads(tracker$dumps())$phases(), phases)
})

test_that("forked workers mark, and a mark outside of a recording has no effect", {
  skip_on_os("windows")
  tracker <- ResourceTracker$new(interval = 0.05, discover_cloud = FALSE, autostart = FALSE)
  tracker$mark("early")
  tracker$start()
  job <- parallel::mcparallel({
    tracker$mark("worker")
    Sys.sleep(0.2)
  })
  parallel::mccollect(job)
  tracker$mark("parent")
  tracker$stop()
  tracker$mark("late")
  expect_equal(tracker$phases()$name, c("start", "worker", "parent"))
  expect_equal(nrow(ResourceTracker$new(autostart = FALSE)$phases()), 0)
})

test_that("phase returns the value of its expression and ends with an error", {
  tracker <- ResourceTracker$new(interval = 0.05, discover_cloud = FALSE)
  expect_equal(tracker$phase("outer", tracker$phase("inner", 1 + 1)), 2)
  expect_error(tracker$phase("outer", stop("no data")), "no data")
  tracker$stop()
  expect_equal(tracker$phases()$times, c(3, 3, 1))
  expect_error(tracker$mark(1), class = "resource_tracker_value_error")
})
