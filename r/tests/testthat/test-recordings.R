test_that("a recording survives every round trip", {
  tracker <- recorded()
  file <- tempfile(fileext = ".json.gz")
  on.exit(unlink(file))
  expect_identical(tracker$dump(file), tracker)
  twins <- list(
    ResourceTracker$load(file), tracker$load(file), ResourceTracker$loads(tracker$dumps()),
    ResourceTracker$from_snapshot(tracker$snapshot())
  )
  for (twin in twins) {
    expect_s3_class(twin, "ResourceTracker")
    expect_identical(twin$stats(), tracker$stats())
    expect_identical(twin$process_metrics, tracker$process_metrics)
    expect_identical(twin$system_metrics, tracker$system_metrics)
    expect_identical(twin$extra_metrics, tracker$extra_metrics)
    expect_identical(twin$recommend_resources(), tracker$recommend_resources())
    expect_identical(twin$server_info, tracker$server_info)
    expect_identical(twin$interval, tracker$interval)
    expect_identical(twin$start_time, tracker$start_time)
    expect_identical(twin$dumps(), tracker$dumps())
    expect_false(twin$running)
    expect_error(twin$start(), "already stopped", class = "resource_tracker_state_error")
  }
  expect_gt(tracker$n_samples, 1, label = "loading leaves the tracker unchanged")
})

test_that("a snapshot has the documented elements", {
  snapshot <- recorded()$snapshot()
  expect_true(all(
    c("metadata", "server_info", "cloud_info", "process_metrics", "system_metrics") %in% names(snapshot)
  ))
  expect_identical(snapshot$metadata$version, 1L)
  expect_identical(snapshot$metadata$resource_tracker$implementation, "procfs")
  expect_equal(snapshot$metadata$duration, snapshot$metadata$stop_time - snapshot$metadata$start_time)
  expect_true("method" %in% names(snapshot$metadata))
  expect_null(snapshot$metadata$method)
  expect_s3_class(snapshot$process_metrics, "data.frame")
})

test_that("a snapshot can be taken while the tracker runs", {
  tracker <- ResourceTracker$new(interval = 0.01, discover_cloud = FALSE)$wait_for_samples(3)
  snapshot <- tracker$snapshot()
  expect_identical(nrow(snapshot$process_metrics), nrow(snapshot$system_metrics))
  expect_gte(nrow(snapshot$process_metrics), 3)
  expect_true(tracker$running)
  tracker$stop()
})

test_that("arrays of one element stay arrays", {
  snapshot <- recorded()$snapshot()
  snapshot$server_info$gpu_names <- I("a GPU")
  snapshot$run$notes <- I("a note")
  twin <- ResourceTracker$from_snapshot(snapshot)
  expect_match(twin$dumps(), "\"gpu_names\":[\"a GPU\"]", fixed = TRUE)
  expect_s3_class(twin$snapshot()$server_info$gpu_names, "AsIs")
  expect_identical(twin$server_info$gpu_names, "a GPU")
  again <- ResourceTracker$from_snapshot(twin$snapshot())
  expect_identical(again$dumps(), twin$dumps())
})

test_that("whole numbers too large for R's integers stay whole", {
  snapshot <- recorded()$snapshot()
  snapshot$run$input_bytes <- 5e9
  twin <- ResourceTracker$from_snapshot(snapshot)
  expect_match(twin$dumps(), "\"input_bytes\":5000000000,", fixed = TRUE)
  expect_identical(ResourceTracker$from_snapshot(twin$snapshot())$dumps(), twin$dumps())
})

test_that("an invalid recording is an error with the file name", {
  file <- tempfile("damaged-", fileext = ".json.gz")
  on.exit(unlink(file))
  recorded()$dump(file)
  whole <- readBin(file, "raw", file.size(file))
  contents <- list(
    head(whole, -10), head(whole, length(whole) %/% 2), raw(0), as.raw(c(0x50, 0x4b, 3, 4)), charToRaw("{}"),
    charToRaw("[]")
  )
  for (content in contents) {
    writeBin(content, file)
    expect_error(ResourceTracker$load(file), basename(file), fixed = TRUE, class = "resource_tracker_format_error")
  }
  expect_error(ResourceTracker$load("/no/such/file"), "/no/such/file", class = "resource_tracker_io_error")
  expect_error(ResourceTracker$loads("not JSON"), class = "resource_tracker_format_error")
  for (snapshot in list(list(), list(metadata = list(version = 2L)), 1, "x", NULL)) {
    expect_error(ResourceTracker$from_snapshot(snapshot), class = "resource_tracker_format_error")
  }
  for (snapshot in list(list(), list(1), 1, "x", NULL)) {
    expect_error(ResourceTracker$from_snapshot(snapshot), "a snapshot is a named list, as `snapshot()` ", fixed = TRUE)
  }
  for (snapshot in list(list(metadata = mean), quote(x))) {
    expect_error(ResourceTracker$from_snapshot(snapshot), "cannot convert", class = "resource_tracker_value_error")
  }
  expect_error(recorded()$dump("/no/such/folder/file"), "/no/such/folder/file", class = "resource_tracker_io_error")
})

test_that("a loaded recording keeps an interval outside the allowed range", {
  snapshot <- recorded()$snapshot()
  snapshot$metadata$interval <- 1e6
  expect_identical(ResourceTracker$from_snapshot(snapshot)$interval, 1e6)
})

test_that("RESOURCE_TRACKER_BACKEND selects the backend", {
  Sys.setenv(RESOURCE_TRACKER_BACKEND = "sysinfo")
  on.exit(Sys.unsetenv("RESOURCE_TRACKER_BACKEND"))
  tracker <- ResourceTracker$new(interval = 0.05, discover_cloud = FALSE)$wait_for_samples()$stop()
  expect_identical(tracker$snapshot()$metadata$resource_tracker$implementation, "sysinfo")
  Sys.setenv(RESOURCE_TRACKER_BACKEND = "abacus")
  expect_error(ResourceTracker$new(), "abacus")
})

test_that("deeply nested lists are rejected", {
  deep <- 1
  for (level in 1:1000) deep <- list(deep)
  expect_error(recorded()$recommend_resources(historical_stats = deep), "levels deep")
})

test_that("export() writes the combined table in the format of the extension", {
  tracker <- recorded()
  folder <- scratch_folder()
  on.exit(unlink(folder, recursive = TRUE))
  path <- function(name) file.path(folder, name)
  as_numbers <- function(frame) list2DF(lapply(frame, as.double))
  expect_invisible(tracker$export(path("run.csv")))
  expect_identical(as_numbers(read.csv(path("run.csv"))), as_numbers(tracker$get_combined_metrics()))
  tracker$export(path("run.txt"), "csv", bytes = TRUE, human_names = TRUE)
  frame <- read.csv(path("run.txt"), check.names = FALSE)
  expect_identical(as_numbers(frame), as_numbers(tracker$get_combined_metrics(bytes = TRUE, human_names = TRUE)))
  tracker$export(path("run.JSONL"))
  lines <- readLines(path("run.JSONL"))
  expect_length(lines, tracker$n_samples)
  expect_match(lines, "^\\{\"timestamp\": ?[0-9.]+, ?\"system_processes\"")
  tracker$export(path("run.json"))
  expect_identical(ResourceTracker$load(path("run.json"))$dumps(), tracker$dumps())
})

test_that("an export that cannot be written is a clear error and leaves no file", {
  tracker <- recorded()
  folder <- scratch_folder()
  on.exit(unlink(folder, recursive = TRUE))
  path <- function(name) file.path(folder, name)
  for (call in expression(tracker$export(path("run.xlsx")), tracker$export(path("run")), tracker$export(path("x"), "feather"))) {
    expect_error(eval(call), "unknown format .*\nhint: use csv, json", class = "resource_tracker_value_error")
  }
  expect_error(tracker$export(path("run.json"), bytes = TRUE), "no table options", class = "resource_tracker_value_error")
  expect_error(tracker$export("/no/such/folder/run.csv"), "/no/such/folder", class = "resource_tracker_io_error")
  expect_error(tracker$export(1), "`path` must be one string", class = "resource_tracker_value_error")
  expect_identical(list.files(folder, all.files = TRUE, no.. = TRUE), character())
  tracker$export(path("run.parquet"))
  expect_identical(readBin(path("run.parquet"), "raw", 4), charToRaw("PAR1"))
})
