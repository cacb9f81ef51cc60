#' The Python module
#'
#' `resource.tracker::resource_tracker` is the Python module `resource_tracker`, for programs written in both languages.
#' The R package does not need it. The module needs the R package reticulate and, in the Python of reticulate, the
#' distribution `resource-tracker`. Python starts on the first use of the module.
#'
#' @format A Python module, as returned by [reticulate::import()].
#' @examples
#' \dontrun{
#' resource.tracker::resource_tracker$get_server_info()
#' }
#' @name resource_tracker
#' @usage resource_tracker
#' @export resource_tracker
NULL

no_python <- paste(
  "the Python module `resource_tracker` is not installed;",
  "R programs do not need it: `ResourceTracker` of this package is native"
)

python_module <- function() {
  if (!requireNamespace("reticulate", quietly = TRUE)) {
    return(structure(list(), class = "resource_tracker_no_python"))
  }
  failed <- function(error) raise("unavailable", no_python, paste("reticulate:", conditionMessage(error)))
  module <- reticulate::import("resource_tracker", delay_load = list(on_error = failed))
  class(module) <- c("resource_tracker_module", class(module))
  module
}

# reticulate shows a module that is not loaded yet as `<pointer: 0x0>`.
#' @export
format.resource_tracker_module <- function(x, ...) {
  if (!reticulate::py_is_null_xptr(x)) return(NextMethod())
  "<Python module `resource_tracker`, which is loaded on first use>"
}

#' @export
print.resource_tracker_module <- function(x, ...) {
  if (!reticulate::py_is_null_xptr(x)) return(NextMethod())
  writeLines(format(x))
  invisible(x)
}

# Raised on use and not on access, since tools that list the objects of a package must not fail.
without_reticulate <- function() {
  raise("unavailable", no_python, "install.packages(\"reticulate\"), and `pip install resource-tracker` for Python")
}

#' @export
`$.resource_tracker_no_python` <- function(x, name) without_reticulate()

#' @export
print.resource_tracker_no_python <- function(x, ...) {
  writeLines("<Python module `resource_tracker`, which needs the R package reticulate>")
  invisible(x)
}
