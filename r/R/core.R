# Calls of the native core: argument checks, errors and warnings.

# Returns the result of a native call, or raises its error. With extendr's feature `result_list`, a failed call returns
# list(ok, err). Arguments are checked before the call, so an R error inside the call is a bug of this package.
core <- function(result) {
  result <- tryCatch(result, error = function(error) {
    if (inherits(error, "resource_tracker_error")) stop(error) # from an argument, which is evaluated here
    list(err = list(kind = "internal", message = conditionMessage(error), hint = "please report this"))
  })
  if (is.null(result$err)) return(result$ok)
  raise(result$err$kind, result$err$message, result$err$hint)
}

# `kind` selects the class: value, state, process, io, format, unavailable or internal.
raise <- function(kind, message, hint = NULL) {
  if (!is.null(hint)) message <- paste0(message, "\nhint: ", hint)
  class <- c(sprintf("resource_tracker_%s_error", kind), "resource_tracker_error", "error", "condition")
  stop(structure(class = class, list(message = message, call = NULL)))
}

# With `options(warn = 2)` warnings are errors. A message instead, since the tracker must not end the job.
caution <- function(message) {
  is_error <- getOption("warn") >= 2
  kind <- if (is_error) "message" else "warning"
  text <- if (is_error) sprintf("Warning: %s\n", message) else message
  condition <- structure(class = c("resource_tracker_warning", kind, "condition"), list(message = text, call = NULL))
  if (is_error) base::message(condition) else warning(condition)
}

flag <- function(value, name) {
  if (isTRUE(value) || isFALSE(value)) return(value)
  raise("value", sprintf("`%s` must be TRUE or FALSE", name))
}

number <- function(value, name) {
  if (is.numeric(value) && length(value) == 1 && !is.na(value)) return(as.double(value))
  raise("value", sprintf("`%s` must be one number", name))
}

text <- function(value, name) {
  if (is.character(value) && length(value) == 1 && !is.na(value)) return(enc2utf8(value))
  raise("value", sprintf("`%s` must be one string", name))
}

text_or_null <- function(value, name) if (is.null(value)) NULL else text(value, name)

texts <- function(value, name) {
  if (is.null(value)) return(character())
  if (is.character(value) && !anyNA(value)) return(enc2utf8(value))
  raise("value", sprintf("`%s` must be a character vector", name))
}

file_path <- function(value, name) path.expand(text(value, name))

file_paths <- function(value, name) path.expand(texts(value, name))

whole_number <- function(value, name) {
  value <- number(value, name)
  if (value %% 1 == 0 && value >= 0 && value <= .Machine$integer.max) return(as.integer(value))
  raise("value", sprintf("`%s` must be a whole number, 0 or more", name))
}

has_names <- function(value) !length(value) || (!is.null(names(value)) && !anyNA(names(value)) && all(names(value) != ""))

# Filters of servers, from the dots of a function.
filters_of <- function(...) {
  filters <- list(...)
  if (has_names(filters)) return(filters)
  raise("value", "filters need names, such as `vendor_id = \"aws\"`")
}

tags_of <- function(tags) {
  is_text <- function(value) is.character(value) && length(value) == 1 && !is.na(value)
  tags <- if (is.null(tags) || is.character(tags) || is.list(tags)) as.list(tags) else list(tags)
  if (!all(vapply(tags, is_text, NA)) || !has_names(tags) || anyDuplicated(names(tags))) {
    raise("value", "`tags` must be strings with unique names, such as `c(team = \"vision\")`")
  }
  names(tags) <- enc2utf8(as.character(names(tags)))
  lapply(tags, enc2utf8)
}

moment <- function(seconds) if (is.null(seconds)) NULL else .POSIXct(seconds)
