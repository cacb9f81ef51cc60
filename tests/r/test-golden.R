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

# JSON output of the command, with objects as lists.
json_of <- function(...) {
  json <- jsonlite::fromJSON(paste(command(...), collapse = "\n"), simplifyDataFrame = FALSE, simplifyMatrix = FALSE)
  json[names(json) != "schema_version"]
}

# Compares field by field. Numbers are printed by one program and read by another, so the last digit may differ.
expect_fields <- function(found, expected, info) {
  as_numbers <- function(value) {
    if (is.list(value)) return(lapply(value, as_numbers))
    if (is.numeric(value)) as.double(value) else value
  }
  expect_identical(names(found), names(expected), info = info)
  for (field in names(expected)) {
    expect_equal(as_numbers(found[[field]]), as_numbers(expected[[field]]), tolerance = 1e-12, info = paste(info, field))
  }
}

test_that("run, statistics and advice are those of the command, field by field", {
  before <- Sys.getenv("XDG_DATA_HOME")
  on.exit(Sys.setenv(XDG_DATA_HOME = before))
  Sys.setenv(XDG_DATA_HOME = tempfile("data-"))
  record <- function(...) {
    file <- tempfile(fileext = ".json.gz")
    try(command("run", "--quiet", "-i", "0.05", "-o", file, ...), silent = TRUE)
    file
  }
  work <- "seq 300000 | sort -R >/dev/null"
  files <- c(
    golden = golden("linux-6.18-vm.json"), original = file.path(repository, "fixtures", "original", "snapshot.json"),
    plain = record("--", "sh", "-c", work),
    failed = record("--job", "failing", "--tag", "fold=1", "--", "sh", "-c", paste(work, "; exit 3")),
    second = record("--job", "failing", "--tag", "fold=2", "--input", golden("linux-6.18-vm.json"), "--", "sh", "-c", work)
  )
  for (name in names(files)) {
    tracker <- ResourceTracker$load(files[[name]])
    run <- as.list(tracker)
    shown <- json_of("show", files[[name]], "--json")
    expect_gte(length(run), 30)
    expect_fields(run, shown[names(run)], paste(name, "show"))
    expect_identical(
      setdiff(names(shown), names(run)),
      c(names(tracker$explain()), "requested", "advice", "servers", "cost", "recording", "report"), info = name
    )
    explained <- tracker$explain()
    expect_fields(explained, shown[names(explained)], paste(name, "explain"))
    stats <- json_of("stats", files[[name]], "--json")
    expect_fields(as.list(tracker$stats()), stats$stats, paste(name, "stats"))
    expect_fields(run, stats$run, paste(name, "run"))
    advice <- as.list(tracker$advise())
    expect_fields(advice, json_of("recommend", files[[name]], "--json", "--offline"), paste(name, "recommend"))
    expect_fields(advice$run, run, paste(name, "run of the advice"))
    expect_length(advice, 12)
  }
  statuses <- vapply(files, function(file) c(as.list(ResourceTracker$load(file))$status, "")[1], "")
  expect_identical(unname(statuses), c("", "", "finished", "failed", "finished"))
  warnings <- unlist(ResourceTracker$load(files[["failed"]])$advise()$warnings)
  expect_true("incomplete" %in% warnings, info = paste(warnings, collapse = "\n"))
})

test_that("the history is the list of the command, row by row", {
  before <- Sys.getenv("XDG_DATA_HOME")
  on.exit(Sys.setenv(XDG_DATA_HOME = before))
  Sys.setenv(XDG_DATA_HOME = tempfile("data-"))
  command("run", "--quiet", "--job", "train", "--tag", "fold=1", "--tag", "team=vision", "--", "sleep", "0.1")
  try(command("run", "--quiet", "--", "sh", "-c", "exit 3"), silent = TRUE)
  ResourceTracker$new(interval = 0.05, job = "train")$wait_for_samples(1)$stop()
  runs <- resource_tracker_history()
  listed <- json_of("list", "--json")$runs
  expect_identical(nrow(runs), 3L)
  for (row in seq_along(listed)) {
    for (column in setdiff(names(runs), c("tags", "command"))) {
      cell <- as.vector(runs[[column]][row])
      expect_equal(if (is.na(cell)) NULL else cell, listed[[row]][[column]], info = paste(row, column))
    }
  }
  expect_identical(runs$tags, c("", "", "fold=1,team=vision"))
  expect_identical(runs$command[2:3], c("sh -c exit 3", "sleep 0.1"))
})
