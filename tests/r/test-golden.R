golden <- function(name) file.path(repository, "golden", name)

test_that("the golden recording survives a round trip through R", {
  text <- read_whole(golden("linux-6.18-vm.json"))
  tracker <- ResourceTracker$load(golden("linux-6.18-vm.json"))
  expect_identical(tracker$dumps(), text)
  expect_identical(ResourceTracker$from_snapshot(tracker$snapshot())$dumps(), text)
})

test_that("tables, statistics and recommendation match the golden files", {
  lines <- readLines(golden("linux-6.18-vm.txt"))
  tracker <- ResourceTracker$load(golden("linux-6.18-vm.json"))
  headers <- grep("^\"timestamp\"", lines)
  expect_length(headers, 3)
  json <- grep("^\\{", lines)
  expect_length(json, 2)
  ends <- c(headers[-1], json[1]) - 1
  tables <- list(tracker$process_metrics, tracker$system_metrics, tracker$extra_metrics)
  for (at in 1:3) {
    expect_identical(plain_table(tables[[at]]), read_table(lines[headers[at]:ends[at]]))
  }
  # The golden statistics are computed without the start time, so their duration differs.
  stats <- jsonlite::fromJSON(lines[json[1]:(json[2] - 1)])
  as_numbers <- function(stats) rapply(unclass(stats), as.double, how = "replace")
  shared <- setdiff(names(stats), "timestamp")
  expect_length(shared, 8)
  expect_identical(as_numbers(tracker$stats())[shared], as_numbers(stats)[shared])
  expect_identical(unclass(tracker$recommend_resources()), jsonlite::fromJSON(lines[json[2]:length(lines)]))
})

test_that("a recording of the original package loads", {
  tracker <- ResourceTracker$load(file.path(repository, "fixtures", "original", "snapshot.json"))
  expect_gt(tracker$n_samples, 0)
  expect_gt(tracker$stats()$process_memory$max, 0)
  expect_match(as.character(tracker$report()), "</html>")
})
