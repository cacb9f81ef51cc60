#' What an R job really used, and what to run it on next time
#'
#' [ResourceTracker] is the way in; `vignette("resource-tracker")` shows it.
#'
#' @importFrom R6 R6Class
#' @useDynLib resource.tracker, .registration = TRUE
#' @keywords internal
"_PACKAGE"
