results <- function() {
  tracker <- recorded()
  list(
    tracker$stats(), tracker$stats(list(process_memory = list(median = median))), tracker$recommend_resources(),
    tracker$recommend_server(), tracker$server_info, tracker$advise(), summary(tracker)
  )
}

test_that("summary(), as.data.frame() and as.list() work on every result", {
  for (result in results()) {
    expect_s3_class(result, "resource_tracker_list")
    expect_identical(attributes(as.list(result)), list(names = names(result)))
    expect_identical(as.list(result)[[1]], result[[1]])
    for (frame in list(as.data.frame(result), summary(result))) {
      expect_s3_class(frame, "data.frame")
      expect_gte(nrow(frame), 1)
    }
    expect_output(print(result))
  }
})

test_that("statistics become one row, or one row per figure", {
  stats <- recorded()$stats()
  row <- as.data.frame(stats)
  expect_identical(nrow(row), 1L)
  expect_identical(row$process_memory.max, stats$process_memory$max)
  expect_identical(row$timestamp.duration, stats$timestamp$duration)
  expect_identical(nrow(rbind(row, row)), 2L)
  figures <- summary(stats)
  expect_identical(figures$figure, names(row))
  expect_identical(figures$value[figures$figure == "process_memory.max"], as.double(stats$process_memory$max))
})

test_that("unknown facts are NA in a row, and several values one cell", {
  info <- recorded()$server_info
  info$gpu_names <- c("A", "B")
  info["memory_limit_mb"] <- list(NULL)
  row <- as.data.frame(info)
  expect_identical(row$gpu_names, "A, B")
  expect_identical(row$memory_limit_mb, NA)
})

test_that("advice becomes the table of predicted times and costs", {
  advice <- recorded()$advise()
  rows <- as.data.frame(advice)
  expect_identical(nrow(rows), length(advice$what_if))
  expect_identical(rows$cpus[1], 1L)
  expect_identical(rows$predicted_seconds[1], advice$what_if[[1]]$predicted_seconds)
  expect_identical(rows$server[1], advice$what_if[[1]]$server$name)
  advice$what_if <- list()
  expect_identical(dim(as.data.frame(advice)), c(0L, ncol(rows)))
  expect_identical(summary(advice)$figure, names(advice$request))
})

test_that("a tracker becomes a list, a summary and its combined table", {
  tracker <- recorded()
  run <- as.list(tracker)
  expect_identical(run$memory_peak_bytes, tracker$stats()$process_memory$max * 1024)
  expect_identical(run$status, "finished")
  expect_identical(.POSIXct(run$start_time), tracker$start_time)
  expect_identical(run$duration_seconds, tracker$stats()$timestamp$duration)
  run["start_time"] <- list(tracker$start_time)
  expect_identical(as.list(summary(tracker)), run)
  expect_identical(as.data.frame(tracker), tracker$get_combined_metrics())
  expect_identical(as.data.frame(tracker, bytes = TRUE), tracker$get_combined_metrics(bytes = TRUE))
  expect_null(as.list(ResourceTracker$new(autostart = FALSE))$memory_peak_bytes)
})

test_that("jsonlite converts every result", {
  skip_if_not_installed("jsonlite")
  for (result in results()) {
    json <- jsonlite::toJSON(result, auto_unbox = TRUE, null = "null", digits = NA)
    expect_identical(names(jsonlite::fromJSON(json, simplifyVector = FALSE)), names(result))
  }
  stats <- jsonlite::fromJSON(jsonlite::toJSON(recorded()$stats(), digits = NA))
  expect_equal(stats$process_memory$max, recorded()$stats()$process_memory$max)
})
