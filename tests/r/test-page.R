test_that("a package installed from its tarball has the vignette", {
  found <- utils::vignette("resource-tracker", package = "resource.tracker")
  expect_match(paste(readLines(file.path(found$Dir, "doc", found$PDF)), collapse = "\n"), "advise()", fixed = TRUE)
})

test_that("help pages contain no raw Markdown", {
  pages <- list.files(file.path(repository, "r", "man"), full.names = TRUE)
  expect_gte(length(pages), 9)
  for (page in pages) {
    lines <- utils::capture.output(tools::Rd2txt(page, options = list(underline_titles = FALSE)))
    expect_identical(grep("`|[*][*]|\\]\\(", lines, value = TRUE), character(), info = page)
  }
})

test_that("the report is valid HTML with the figures of the run", {
  tracker <- ResourceTracker$new(interval = 0.05)$wait_for_samples(5)$stop()
  opened <- NULL
  before <- options(browser = function(url) opened <<- url)
  on.exit(options(before))
  tracker$report()$browse()
  page <- xml2::read_html(sub("^file://", "", opened))
  text <- function(path) xml2::xml_text(xml2::xml_find_all(page, path))
  expect_match(text("//footer"), "from R", all = FALSE)
  expect_gte(length(xml2::xml_find_all(page, "//*[local-name()='svg']")), 4)
  expect_gte(length(text("//h2")), 4)
  # The page loads no external scripts, styles or images.
  expect_length(xml2::xml_find_all(page, "//script[@src] | //link[@rel='stylesheet'] | //img[starts-with(@src, 'http')]"), 0)
  body <- paste(text("//body"), collapse = " ")
  expect_match(body, "Finished")
  advice <- tracker$advise()
  expect_match(body, advice$servers$anywhere$name, fixed = TRUE)
  expect_match(body, advice$memory$why, fixed = TRUE)
})
