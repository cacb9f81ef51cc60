test_that("the command reads recordings of R, and R reads the export of the command", {
  tracker <- ResourceTracker$new(interval = 0.05)$wait_for_samples(5)$stop()
  file <- tempfile(fileext = ".json.gz")
  tracker$dump(file)
  combined <- read_table(command("export", "--format", "csv", file))
  expect_identical(combined, plain_table(tracker$get_combined_metrics()))
  again <- tempfile(fileext = ".json")
  command("export", "--format", "json", "-o", again, file)
  twin <- ResourceTracker$load(again)
  expect_identical(twin$stats(), tracker$stats())
  expect_identical(twin$dumps(), tracker$dumps())
  page <- tempfile(fileext = ".html")
  command("report", "-o", page, file)
  expect_match(read_whole(page), "</html>")
})

test_that("R reads recordings of the command", {
  file <- tempfile(fileext = ".json.gz")
  command("run", "--quiet", "--no-children", "-i", "0.1", "-o", file, "--", "sleep", "2")
  tracker <- ResourceTracker$load(file)
  expect_gte(tracker$n_samples, 5)
  expect_identical(tracker$interval, 0.1)
  expect_false(tracker$children)
  expect_identical(unlist(tracker$snapshot()$run$command), c("sleep", "2"))
  expect_gte(tracker$stats()$timestamp$duration, 2)
})

test_that("runs of R and of the command with one job name are listed and sized together", {
  before <- Sys.getenv("XDG_DATA_HOME")
  on.exit(Sys.setenv(XDG_DATA_HOME = before))
  Sys.setenv(XDG_DATA_HOME = tempfile("data-"))
  for (run in 1:2) command("run", "--quiet", "-i", "0.05", "--job", "train", "--", "sleep", "0.2")
  failed <- NULL
  try(silent = TRUE, track(
    stop("no data"), job = "train", interval = 0.05, on_finish = function(tracker, error) failed <<- as.list(tracker)$id
  ))
  tracker <- ResourceTracker$new(interval = 0.05, job = "train", tags = c(team = "vision"))$wait_for_samples(2)$stop()
  listed <- jsonlite::fromJSON(command("list", "--job", "train", "--json"), simplifyDataFrame = FALSE)$runs
  expect_identical(vapply(listed, function(run) run$status, ""), c("finished", "failed", "finished", "finished"))
  expect_identical(listed[[1]]$id, as.list(tracker)$id)
  expect_identical(listed[[2]]$id, failed)
  advice <- jsonlite::fromJSON(command("recommend", "train", "--json"), simplifyDataFrame = FALSE)
  expect_identical(tracker$advise()$runs, advice$runs)
  expect_gte(advice$runs, 3)
  expect_identical(tracker$advise()$request, advice$request)
})

test_that("a tracker of R inside a run of the command belongs to that run", {
  program <- tempfile(fileext = ".R")
  inner <- tempfile(fileext = ".json.gz")
  outer <- tempfile(fileext = ".json.gz")
  writeLines(c(
    sprintf(".libPaths(%s)", paste(deparse(.libPaths()), collapse = "")), "library(resource.tracker)",
    sprintf("track(Sys.sleep(0.2), interval = 0.05, on_finish = function(tracker, error) tracker$dump('%s'))", inner)
  ), program)
  command("run", "--quiet", "-o", outer, "--", file.path(R.home("bin"), "Rscript"), "--vanilla", program)
  id <- ResourceTracker$load(outer)$as_list()$id
  expect_true(nzchar(id))
  expect_identical(ResourceTracker$load(inner)$as_list()$parent, id)
})
