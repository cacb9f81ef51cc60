test_that("an empty history is a data frame with all columns", {
  before <- Sys.getenv("XDG_DATA_HOME")
  on.exit(Sys.setenv(XDG_DATA_HOME = before))
  Sys.setenv(XDG_DATA_HOME = tempfile("data-"))
  runs <- resource_tracker_history()
  expect_identical(nrow(runs), 0L)
  columns <- c("id", "job", "status", "duration_seconds", "cpu_mean_cores", "memory_peak_bytes", "tags", "command")
  expect_true(all(columns %in% names(runs)))
  expect_s3_class(runs$start_time, "POSIXct")
})

test_that("the history is a data frame of runs, newest first, with NA for unknown values", {
  for (fold in 1:2) tracker <- short_run(job = "folds", tags = c(fold = as.character(fold)))
  runs <- resource_tracker_history(job = "folds")
  expect_identical(runs$tags, c("fold=2", "fold=1"))
  expect_identical(runs$id[1], as.list(tracker)$id)
  expect_identical(runs$status, c("finished", "finished"))
  expect_identical(as.double(runs$start_time[1]), as.double(tracker$start_time))
  run <- as.list(tracker)
  expect_true(all(names(runs) %in% names(run)))
  for (figure in c("memory_peak_bytes", "cpu_mean_cores")) expect_equal(runs[[figure]][1], run[[figure]])
  expect_true(all(runs$duration_seconds > 0))
  expect_true(all(is.na(runs[c("input_bytes", "parent")])))
  expect_identical(resource_tracker_history("folds", "fold=1")$id, runs$id[2])
  # NA cells among known ones keep the type of the column.
  input <- tempfile()
  writeBin(raw(10), input)
  short_run(job = "folds", input = input)
  runs <- resource_tracker_history("folds")
  expect_identical(runs$input_bytes, c(10, NA, NA))
  expect_identical(runs$tags[1], "")
  expect_identical(nrow(resource_tracker_history(tag = "fold")), 2L)
  expect_identical(nrow(resource_tracker_history("no such job")), 0L)
})

test_that("wrong arguments and a history that cannot be read are clear errors", {
  expect_error(resource_tracker_history(job = 1), "`job` must be one string", class = "resource_tracker_value_error")
  expect_error(resource_tracker_history(tag = NA), "`tag` must be one string", class = "resource_tracker_value_error")
  before <- Sys.getenv("XDG_DATA_HOME")
  on.exit(Sys.setenv(XDG_DATA_HOME = before))
  file <- tempfile()
  file.create(file)
  Sys.setenv(XDG_DATA_HOME = file)
  expect_error(resource_tracker_history(), file, class = "resource_tracker_io_error")
})

test_that("a run with a job name is in the history when it stops, with its tags and the size of its inputs", {
  input <- tempfile()
  on.exit(unlink(input))
  writeBin(raw(1234), input)
  run <- as.list(short_run(job = "named", tags = c(team = "vision", stage = "test"), input = input))
  expect_identical(run$job, "named")
  expect_identical(run$tags, list(stage = "test", team = "vision"))
  expect_identical(run$input_bytes, 1234L)
  expect_identical(run$status, "finished")
  expect_true(run$id %in% resource_tracker_history()$id)
})

test_that("a run without a job name is in the history after save()", {
  tracker <- short_run(tags = list(team = "vision"))
  id <- as.list(tracker)$id
  expect_false(id %in% resource_tracker_history()$id)
  expect_identical(tracker$save(), id)
  expect_true(id %in% resource_tracker_history()$id)
  expect_identical(tracker$save(), id)
  tracker$cleanup()
  expect_error(tracker$save(), "removed by cleanup", class = "resource_tracker_state_error")
})

test_that("a history that cannot be written is a warning at the stop and an error of save()", {
  before <- Sys.getenv("XDG_DATA_HOME")
  on.exit(Sys.setenv(XDG_DATA_HOME = before))
  Sys.setenv(XDG_DATA_HOME = "/proc/no-such-folder")
  tracker <- ResourceTracker$new(interval = 0.02, discover_cloud = FALSE, job = "lost")$wait_for_samples(1)
  expect_warning(tracker$stop(), "not in the history", class = "resource_tracker_warning")
  expect_error(tracker$save(), "/proc/no-such-folder", class = "resource_tracker_io_error")
})

test_that("wrong types of job, tags and input are clear errors", {
  new <- function(...) ResourceTracker$new(autostart = FALSE, ...)
  for (job in list(1, NA_character_, c("a", "b"), character())) {
    expect_error(new(job = job), "`job` must be one string", class = "resource_tracker_value_error")
  }
  for (tags in list("a", c(a = NA), c(a = 1), list(a = 1), list(a = c("x", "y")), c(a = "x", "y"), c(a = "x", a = "y"), TRUE, sum)) {
    expect_error(new(tags = tags), "`tags` must be strings with unique names", class = "resource_tracker_value_error")
  }
  for (input in list(1, NA_character_, list("x"))) {
    expect_error(new(input = input), "`input` must be a character vector", class = "resource_tracker_value_error")
  }
  expect_no_error(new(tags = list()))
  expect_no_error(new(tags = character(), input = character(), job = ""))
})
