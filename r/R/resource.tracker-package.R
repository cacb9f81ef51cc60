#' What an R job really used, and what to run it on next time
#'
#' [ResourceTracker] is the way in; `vignette("resource-tracker")` shows it.
#'
#' @importFrom R6 R6Class
#' @useDynLib resource.tracker, .registration = TRUE
#' @keywords internal
"_PACKAGE"

.onLoad <- function(libname, pkgname) {
  namespace <- topenv()
  # The class is unpacked and extendr's bookkeeping set up now: a tracker that is to start does not wait for it then.
  force(namespace$ResourceTracker)
  core_version()
  # Made now, since a package's file cannot hold a binding that is computed.
  module <- NULL
  makeActiveBinding("resource_tracker", function() {
    if (is.null(module)) module <<- python_module()
    module
  }, namespace)
}
