#' Measure the resources an R job uses and recommend a machine for the next run
#'
#' [ResourceTracker] records a session, [track()] one expression, and [resource_tracker_history()] lists saved runs.
#' `vignette("resource-tracker")` shows an example session.
#'
#' @importFrom R6 R6Class
#' @useDynLib resource.tracker, .registration = TRUE
#' @keywords internal
"_PACKAGE"

.onLoad <- function(libname, pkgname) {
  namespace <- topenv()
  # Loads the class and initialises extendr now, so that the first tracker starts faster.
  force(namespace$ResourceTracker)
  core_version()
  # Created at load time, since the package's saved namespace cannot hold an active binding.
  module <- NULL
  makeActiveBinding("resource_tracker", function() {
    if (is.null(module)) module <<- python_module()
    module
  }, namespace)
}
