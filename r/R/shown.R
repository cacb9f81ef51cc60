# Lists of figures that print like str(): name, type and value per line.

# jsonlite converts an object by the last of its classes.
shown <- function(value, class = NULL) {
  if (is.null(value)) NULL else structure(value, class = c(class, "resource_tracker_list", "list"))
}

#' Figures of a tracker
#'
#' [ResourceTracker] returns statistics, recommendations and facts about the machine as lists that print like [utils::str()].
#' Advice prints as text.
#'
#' `as.list()` returns the plain list. `as.data.frame()` returns one row, with names such as `process_memory.max` for
#' nested lists; of advice, it returns the table of predicted times and costs by number of CPUs. `summary()` returns a data
#' frame with a row per figure; of advice, the figures of the request.
#'
#' @param x,object Value of `stats()`, `recommend_resources()`, `recommend_server()`, `advise()`, `server_info` or
#'   `cloud_info`.
#' @param ... Passed to [utils::str()] by `print()` and `str()`, else not used.
#' @return `x`, invisibly, from `print()`.
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

#' @rdname resource_tracker_list
#' @export
as.list.resource_tracker_list <- function(x, ...) unclass(x)

#' @rdname resource_tracker_list
#' @export
as.data.frame.resource_tracker_list <- function(x, ...) as.data.frame(lapply(flat(unclass(x)), cell), optional = TRUE)

#' @rdname resource_tracker_list
#' @export
summary.resource_tracker_list <- function(object, ...) {
  figures <- flat(unclass(object))
  data.frame(figure = names(figures), value = unlist(lapply(figures, cell)), row.names = NULL)
}

cell <- function(value) if (length(value) == 1) value else if (length(value)) paste(value, collapse = ", ") else NA

# Nested lists as one list of vectors, with names such as `process_memory.max`.
flat <- function(value, name = NULL) {
  if (!is.list(value) || !length(value)) return(structure(list(if (length(value)) value), names = name))
  own <- if (is.null(names(value))) seq_along(value) else names(value)
  names <- if (is.null(name)) own else paste(name, own, sep = ".")
  do.call(c, unname(Map(flat, value, names)))
}
