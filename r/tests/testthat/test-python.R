# These tests use a stand-in for the Python module, a folder on Python's path.

module_program <- c(
  "library(resource.tracker)",
  "stopifnot(!'reticulate' %in% loadedNamespaces())",
  "module <- resource.tracker::resource_tracker",
  "print(module)",
  "cat(format(module), '\\n')",
  "stopifnot(!reticulate::py_available())",
  "answer <- tryCatch(module$answer(), resource_tracker_unavailable_error = conditionMessage)",
  "cat(answer, if (reticulate::py_available()) 'by Python' else 'without Python')"
)

test_that("`resource_tracker` is the Python module, loaded on first use", {
  skip_if_not_installed("reticulate")
  folder <- scratch_folder()
  dir.create(file.path(folder, "resource_tracker"))
  writeLines("def answer():\n    return 'found'", file.path(folder, "resource_tracker", "__init__.py"))
  environment <- c(paste0("PYTHONPATH=", folder), "RETICULATE_PYTHON=/usr/bin/python3")
  output <- run_program(c(module_program, "cat('\\n')", "print(module)"), environment = environment)
  not_loaded <- "<Python module `resource_tracker`, which is loaded on first use>"
  expect_identical(trimws(tail(output, 4)), c(not_loaded, not_loaded, "found by Python", "Module(resource_tracker)"))
})

test_that("using the missing Python module raises an error that names it", {
  skip_if_not_installed("reticulate")
  environment <- c("PYTHONPATH=/no/such/folder", "RETICULATE_PYTHON=/usr/bin/python3")
  output <- paste(run_program(module_program, environment = environment), collapse = "\n")
  expect_match(output, "the Python module `resource_tracker` is not installed")
  expect_match(output, "No module named")
})

test_that("without reticulate the module can be accessed, and using it raises an error", {
  program <- c(
    "library(resource.tracker)",
    "trace('requireNamespace', quote(if (package == 'reticulate') package <- 'not.installed'), print = FALSE)",
    "module <- resource.tracker::resource_tracker",
    "print(module)",
    "cat(tryCatch(module$ResourceTracker, resource_tracker_unavailable_error = conditionMessage), sep = '\\n')"
  )
  output <- suppressMessages(run_program(program))
  text <- paste(output, collapse = "\n")
  expect_match(text, "<Python module `resource_tracker`, which needs the R package reticulate>", fixed = TRUE)
  expect_match(text, "is not installed.*install.packages")
})
