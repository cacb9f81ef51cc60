# The stand-in for the module is a folder on Python's path: what is tested is how R comes to the module of that name.

module_program <- c(
  "library(resource.tracker)",
  "stopifnot(!'reticulate' %in% loadedNamespaces())",
  "module <- resource.tracker::resource_tracker",
  "stopifnot(!reticulate::py_available())",
  "answer <- tryCatch(module$answer(), resource_tracker_unavailable_error = conditionMessage)",
  "cat(answer, if (reticulate::py_available()) 'by Python' else 'without Python')"
)

test_that("`resource_tracker` is the Python module, which is loaded when it is first used", {
  skip_if_not_installed("reticulate")
  folder <- scratch_folder()
  dir.create(file.path(folder, "resource_tracker"))
  writeLines("def answer():\n    return 'found'", file.path(folder, "resource_tracker", "__init__.py"))
  environment <- c(paste0("PYTHONPATH=", folder), "RETICULATE_PYTHON=/usr/bin/python3")
  expect_identical(tail(run_program(module_program, environment = environment), 1), "found by Python")
})

test_that("without the module a use of it says what is missing", {
  skip_if_not_installed("reticulate")
  environment <- c("PYTHONPATH=/no/such/folder", "RETICULATE_PYTHON=/usr/bin/python3")
  said <- paste(run_program(module_program, environment = environment), collapse = "\n")
  expect_match(said, "the Python module `resource_tracker` is not there")
  expect_match(said, "No module named")
})

test_that("without reticulate a use of it says what is missing, and a look does not fail", {
  program <- c(
    "library(resource.tracker)",
    "trace('requireNamespace', quote(if (package == 'reticulate') package <- 'not.installed'), print = FALSE)",
    "module <- resource.tracker::resource_tracker",
    "cat(tryCatch(module$ResourceTracker, resource_tracker_unavailable_error = conditionMessage), sep = '\\n')"
  )
  said <- suppressMessages(run_program(program))
  expect_match(paste(said, collapse = "\n"), "is not there.*install.packages")
})
