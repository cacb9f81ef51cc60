#' The Python module
#'
#' `resource.tracker::resource_tracker` is the Python module of that name, for programs that are written in both
#' languages. Nothing in this package needs it. It takes the package reticulate and, in the Python that reticulate uses,
#' the distribution `resource-tracker`; Python is started when the module is first used, not before.
#'
#' @format A Python module, as of [reticulate::import()].
#' @examples
#' \dontrun{
#' resource.tracker::resource_tracker$get_server_info()
#' }
#' @name resource_tracker
#' @usage resource_tracker
#' @export resource_tracker
NULL

no_python <- paste(
  "the Python module `resource_tracker` is not there;",
  "R needs none of it: `ResourceTracker` of this package is native"
)

python_module <- function() {
  if (!requireNamespace("reticulate", quietly = TRUE)) {
    return(structure(list(), class = "resource_tracker_no_python"))
  }
  failed <- function(error) raise("unavailable", no_python, paste("reticulate says:", conditionMessage(error)))
  reticulate::import("resource_tracker", delay_load = list(on_error = failed))
}

# Only a use tells that reticulate is missing: tools that merely list a package's objects must not fail.
without_reticulate <- function() {
  raise("unavailable", no_python, "install.packages(\"reticulate\"), and `pip install resource-tracker` for Python")
}

#' @export
`$.resource_tracker_no_python` <- function(x, name) without_reticulate()

#' @export
print.resource_tracker_no_python <- function(x, ...) without_reticulate()
