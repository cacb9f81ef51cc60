quick <- function(expr, ...) track(expr, interval = 0.02, discover_cloud = FALSE, ...)

test_that("track() returns the value of the expression with its tracker", {
  value <- quick({
    burn(0.1)
    c(a = 1, b = 2)
  }, job = "tracked", tags = c(kind = "test"))
  tracker <- attr(value, "tracker")
  attr(value, "tracker") <- NULL
  expect_identical(value, c(a = 1, b = 2))
  expect_s3_class(tracker, "ResourceTracker")
  expect_false(tracker$running)
  run <- as.list(tracker)
  expect_identical(run[c("job", "status")], list(job = "tracked", status = "finished"))
  # The CPU time of R includes the sampling thread, the figures of the job do not.
  expect_gt(sum(tracker$process_metrics[c("utime", "stime")]), 0.05)
})

test_that("values without attributes of their own are returned unchanged, and on_finish has the tracker", {
  for (value in list(NULL, new.env(), quote(name), sum)) {
    seen <- NULL
    expect_identical(quick(value, on_finish = function(tracker, error) seen <<- list(tracker, error)), value)
    expect_s3_class(seen[[1]], "ResourceTracker")
    expect_null(seen[[2]])
    expect_null(attributes(value))
  }
})

test_that("an expression that fails is a failed run, and its error reaches the caller", {
  seen <- NULL
  remember <- function(tracker, error) seen <<- list(run = as.list(tracker), error = error)
  error <- expect_error(quick(stop("no data"), on_finish = remember), "no data")
  expect_identical(conditionCall(error), conditionCall(seen$error))
  expect_identical(seen$run[c("status", "error")], list(status = "failed", error = "simpleError: no data"))
  own <- structure(class = c("bad_input", "error", "condition"), list(message = "line 3", call = NULL))
  expect_identical(tryCatch(quick(stop(own), on_finish = remember), bad_input = identity), own)
  expect_identical(seen$run$error, "bad_input: line 3")
  # A nested call that fails deep in the stack.
  endless <- function(n) endless(n + 1)
  expect_s3_class(tryCatch(quick(endless(1), on_finish = remember), error = identity), "error")
  expect_match(seen$run$error, "^[a-zA-Z]+Error: ")
})

test_that("a handled error, and return() in the expression, are no failures", {
  status <- NULL
  remember <- function(tracker, error) status <<- list(as.list(tracker)$status, error)
  value <- quick({
    try(stop("handled"), silent = TRUE)
    withCallingHandlers(warning("not shown"), warning = function(w) invokeRestart("muffleWarning"))
    1
  }, on_finish = remember)
  expect_equal(value, 1, ignore_attr = TRUE)
  expect_identical(status, list("finished", NULL))
  leave <- function() {
    quick(return("early"), on_finish = remember)
    "late"
  }
  expect_identical(leave(), "early")
  expect_identical(status, list("finished", NULL))
  # In a process of its own, since testthat takes every condition of class error as a failure.
  program <- c(
    "library(resource.tracker)",
    "value <- track({ signalCondition(simpleError('not raised')); 1 }, interval = 0.02, discover_cloud = FALSE)",
    "cat(value, as.list(attr(value, 'tracker'))$status)"
  )
  expect_identical(run_program(program), "1 finished")
})

test_that("a failing on_finish is a warning and keeps the value", {
  expect_warning(
    value <- quick(7, on_finish = function(tracker, error) stop("disk full")), "`on_finish` failed: disk full"
  )
  expect_equal(value, 7, ignore_attr = TRUE)
  expect_error(track(1, on_finish = "x"), "`on_finish` must be a function", class = "resource_tracker_value_error")
  expect_error(track(stop("not evaluated"), interval = 0), "interval", class = "resource_tracker_value_error")
})

test_that("a failing on_finish does not replace the error of the expression", {
  before <- options(warn = 2)
  on.exit(options(before))
  own <- structure(class = c("bad_input", "error", "condition"), list(message = "line 3", call = NULL))
  expect_message(
    found <- tryCatch(quick(stop(own), on_finish = function(tracker, error) stop("disk full")), error = identity),
    "`on_finish` failed: disk full"
  )
  expect_identical(found, own)
})

test_that("the value is visible or invisible like the expression", {
  expect_visible(quick(1))
  expect_invisible(quick(invisible(1)))
  expect_invisible(quick(value <- 1))
  expect_visible(quick(NULL))
  expect_invisible(quick(invisible(NULL)))
})

test_that("on_finish may take the tracker only, the tracker and the error, or any arguments", {
  seen <- list()
  remember <- function(...) seen <<- list(...)
  quick(1, on_finish = function(tracker) remember(tracker))
  expect_length(seen, 1)
  quick(1, on_finish = function(tracker, error) remember(tracker, error))
  expect_length(seen, 2)
  try(quick(stop("no data"), on_finish = remember), silent = TRUE)
  expect_s3_class(seen[[2]], "simpleError")
})

test_that("the value is not copied", {
  program <- c(
    "library(resource.tracker)",
    "value <- track(numeric(5e7) + 1, interval = 0.05, discover_cloud = FALSE)", # 400 MB
    "cat(attr(value, 'tracker')$stats()$process_memory$max)"
  )
  expect_lt(as.numeric(run_program(program)), 600 * 1024)
})
