test_that("a report is an HTML page that can be saved and printed", {
  tracker <- recorded()
  report <- tracker$report()
  expect_s3_class(report, "Report")
  page <- as.character(report)
  expect_match(page, "^<!DOCTYPE html>")
  expect_match(page, "</html>\\s*$")
  expect_match(page, "from <code>R</code>", fixed = TRUE)
  file <- tempfile(fileext = ".html")
  on.exit(unlink(file))
  expect_identical(report$save(file), report)
  expect_identical(readChar(file, file.size(file), useBytes = TRUE), enc2native(page))
  expect_error(report$save("/no/such/folder/x.html"), "/no/such/folder/x.html", class = "resource_tracker_io_error")
  expect_output(print(report), "<Report> .* of HTML")
})

test_that("browse opens a file with the page", {
  opened <- NULL
  before <- options(browser = function(url) opened <<- url)
  on.exit(options(before))
  report <- recorded()$report()
  expect_identical(report$browse(), report)
  expect_match(opened, "^file:///.*[.]html$")
  file <- sub("^file://", "", opened)
  on.exit(unlink(dirname(file), recursive = TRUE), add = TRUE)
  shown <- paste(readLines(file, encoding = "UTF-8"), collapse = "\n")
  expect_identical(sub("\n$", "", as.character(report)), shown)
})

test_that("the file of browse stays when R exits, for its owner only", {
  folder <- scratch_folder()
  on.exit(unlink(folder, recursive = TRUE))
  program <- c(
    "library(resource.tracker)",
    "options(browser = function(url) cat(sub('^file://', '', url)))",
    "invisible(Report$new('<p>page</p>')$browse())"
  )
  file <- run_program(program, environment = paste0("TMPDIR=", folder))
  expect_identical(readLines(file, warn = FALSE), "<p>page</p>")
  expect_identical(format(file.mode(dirname(file))), "700")
  expect_length(list.files(folder), 1)
})

test_that("the page shows status and integration", {
  tracker <- ResourceTracker$new(interval = 0.05, discover_cloud = FALSE)$wait_for_samples()
  expect_match(as.character(tracker$report()), "Pending")
  tracker$stop()
  expect_match(as.character(tracker$report()), "Finished")
  expect_match(as.character(tracker$report(status_failed = TRUE)), "Failed")
  named <- function(page, text) grepl(text, as.character(page), fixed = TRUE)
  expect_true(named(tracker$report(integration = "r"), "from <code>R</code>"))
  expect_false(named(tracker$report(integration = "standalone"), "from <code>R</code>"))
  hostile <- tracker$report(integration = "<script>x</script>")
  expect_true(named(hostile, "&lt;script&gt;x"))
  expect_false(named(hostile, "<script>x"))
})

test_that("a knitr document shows the report", {
  skip_if_not_installed("knitr")
  document <- c(
    "```{r, echo=FALSE}",
    "tracker <- resource.tracker::ResourceTracker$new(interval = 0.05, discover_cloud = FALSE)",
    "tracker$wait_for_samples()$stop()",
    "tracker$report()",
    "tracker$recommend_resources()",
    "```"
  )
  text <- knitr::knit(text = document, quiet = TRUE, envir = new.env())
  expect_match(text, "<iframe srcdoc=\"<!DOCTYPE html>", fixed = TRUE)
  expect_match(text, "## List of 4\n##  $ cpu   : int", fixed = TRUE)
})

test_that("plot draws every table that is tracked", {
  file <- tempfile(fileext = ".pdf")
  on.exit(unlink(file))
  grDevices::pdf(file)
  margins <- graphics::par("mar")
  tracker <- recorded()
  expect_identical(plot(tracker), tracker)
  plot(ResourceTracker$new(interval = 0.05, track_system = FALSE, discover_cloud = FALSE)$wait_for_samples()$stop())
  expect_identical(graphics::par("mar"), margins)
  expect_error(plot(ResourceTracker$new(autostart = FALSE)), "No metrics", class = "resource_tracker_state_error")
  grDevices::dev.off()
  expect_gt(file.size(file), 5000)
})
