# Lists of figures that print like str(): name, type and value per line.

shown <- function(value) if (is.null(value)) NULL else structure(value, class = "resource_tracker_list")

#' Figures of a tracker
#'
#' [ResourceTracker] returns statistics, recommendations and facts about the machine as plain lists that print like
#' [utils::str()].
#'
#' @param x,object Value of `stats()`, `recommend_resources()`, `recommend_server()`, `server_info` or `cloud_info`.
#' @param ... Passed to [utils::str()].
#' @return `x`, invisibly.
#' @name resource_tracker_list
NULL

#' @rdname resource_tracker_list
#' @export
print.resource_tracker_list <- function(x, ...) {
  utils::str(unclass(x), ...)
  invisible(x)
}

#' @rdname resource_tracker_list
#' @importFrom utils str
#' @export
str.resource_tracker_list <- function(object, ...) utils::str(unclass(object), ...)
