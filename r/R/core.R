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

caution <- function(message) {
  class <- c("resource_tracker_warning", "warning", "condition")
  warning(structure(class = class, list(message = message, call = NULL)))
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

file_path <- function(value, name) path.expand(text(value, name))

moment <- function(seconds) if (is.null(seconds)) NULL else .POSIXct(seconds)
