test_that("advise() sizes the next run from this run and the earlier runs of its job", {
  for (run in 1:3) tracker <- short_run(job = "sized")
  advice <- tracker$advise()
  expect_identical(advice$runs, 3L)
  expect_identical(tracker$advise(earlier_runs = 1)$runs, 2L)
  expect_identical(tracker$advise(earlier_runs = 0)$runs, 1L)
  expect_gte(advice$request$cpus, 1)
  expect_gte(advice$request$memory_bytes, 128 * 2^20)
  expect_true(all(
    c("request", "cpu", "memory", "gpu", "warnings", "findings", "requests", "servers", "what_if", "cost") %in% names(advice)
  ))
  expect_true("short_run" %in% vapply(advice$warnings, function(warning) warning$warning, ""))
  expect_identical(tracker$advise(vendor_id = "gcp")$servers$anywhere$vendor_id, "gcp")
})

test_that("advise() sizes memory for the input of the next run", {
  input <- tempfile()
  on.exit(unlink(input))
  writeBin(raw(8000), input)
  # Runs whose memory grows with their input: 100,000 kB per 1,000 bytes.
  for (run in 1:20) {
    size <- (7 * run) %% 20 + 1
    snapshot <- recorded()$snapshot()
    snapshot$extra_metrics <- NULL
    snapshot$run[c("id", "job", "input_bytes")] <- list(sprintf("20260101-000000-%04d", run), "grows", as.integer(size * 1000))
    earlier <- 1000 * (20 - run)
    for (time in c("start_time", "stop_time")) snapshot$metadata[[time]] <- snapshot$metadata[[time]] - earlier
    for (table in c("process_metrics", "system_metrics")) {
      snapshot[[table]]$timestamp <- snapshot[[table]]$timestamp - earlier
    }
    snapshot$process_metrics$memory <- size * 1e5
    tracker <- ResourceTracker$from_snapshot(snapshot)
    expect_identical(tracker$save(), snapshot$run$id)
  }
  memory <- tracker$advise(input = input)$memory
  expect_identical(memory$input_bytes, 8000)
  expect_identical(memory$rule, "input_line")
  expect_gte(memory$memory_bytes, 8e5 * 1024)
  expect_lt(memory$memory_bytes, tracker$advise()$memory$memory_bytes)
})

test_that("advise() takes a slowdown, and wrong arguments are clear errors", {
  tracker <- recorded()
  slower <- tracker$advise(slowdown = 1000)
  expect_lte(slower$request$cpus, tracker$advise(slowdown = 0)$request$cpus)
  expect_error(tracker$advise(input = "/no/such/file"), "/no/such/file", class = "resource_tracker_io_error")
  for (slowdown in list(-1, 1001, "5", NA_real_, NaN)) {
    expect_error(tracker$advise(slowdown = slowdown), "`slowdown`", class = "resource_tracker_value_error")
  }
  for (runs in list(-1, 1.5, "5", NULL, Inf)) {
    expect_error(tracker$advise(earlier_runs = runs), "`earlier_runs`", class = "resource_tracker_value_error")
  }
  expect_error(tracker$advise(no_filter = 1), "no_filter", class = "resource_tracker_value_error")
  expect_error(tracker$advise(5, 100, NULL, "aws"), "filters need names", class = "resource_tracker_value_error")
  expect_error(ResourceTracker$new(autostart = FALSE)$advise(), class = "resource_tracker_state_error")
})

test_that("advice prints as text with request, server, warnings and predicted times", {
  text <- paste(capture.output(print(recorded()$advise())), collapse = "\n")
  expect_match(text, "^<Advice> request for the next run, from 1 run\n  CPUs    [0-9]+  \\(")
  expect_match(text, "\n  memory  [0-9]+ MiB  \\(1.2 ")
  expect_match(text, "\n  server  [a-z]+ .* at \\$[0-9.]+/h in .*, price of [0-9-]+, embedded\\)")
  expect_match(text, "\nwarning: the run took only")
  expect_match(text, "\nCPUs  predicted time  cost of a run  cheapest server\n +1 ")
  advice <- recorded()$advise()
  advice$servers$anywhere$name <- "a\033[31mb"
  expect_false(any(grepl("\033", capture.output(print(advice)), fixed = TRUE)))
})
