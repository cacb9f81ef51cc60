# Lists of figures, which print by their structure: a name, a type and a value a line.

shown <- function(value) if (is.null(value)) NULL else structure(value, class = "resource_tracker_list")

#' Figures of a tracker
#'
#' What [ResourceTracker] gives as statistics, recommendations or facts about the machine is a plain list that prints by
#' its structure.
#'
#' @param x,object What `stats()`, `recommend_resources()`, `recommend_server()`, `server_info` or `cloud_info` gave.
#' @param ... Given to [utils::str()].
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
