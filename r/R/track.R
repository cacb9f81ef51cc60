#' Track the resource usage of an expression
#'
#' Runs an expression with a [ResourceTracker] and returns its value, visibly or invisibly like the expression. An error in
#' the expression reaches the caller unchanged, and the run has the status failed, with the class and message of the error.
#'
#' @param expr Expression to evaluate.
#' @param ... Arguments of `ResourceTracker$new()`, such as `job`, `tags` or `interval`.
#' @param on_finish `NULL`, or a function of the stopped tracker and, if it has a second argument, the error (`NULL` if
#'   there was none). An error in this function is a warning.
#' @return The value of the expression, with the tracker as its attribute `tracker`. `NULL`, environments (R6 objects among
#'   them) and other values without attributes of their own are returned unchanged; use `on_finish` for these.
#' @examples
#' total <- track(sum(sqrt(seq_len(1e6))), interval = 0.1, discover_cloud = FALSE)
#' attr(total, "tracker")$stats()
#' @export
track <- function(expr, ..., on_finish = NULL) {
  if (!is.null(on_finish) && !is.function(on_finish)) raise("value", "`on_finish` must be a function or NULL")
  tracker <- ResourceTracker$new(...)
  failure <- NULL
  is_done <- FALSE
  on.exit({
    # An error that was signalled but not raised is no failure.
    if (is_done) failure <- NULL
    if (!is.null(failure)) tracker$set_error(failure)
    tracker$stop()
    if (!is.null(on_finish)) {
      failed <- function(error) caution(paste("`on_finish` failed:", conditionMessage(error)))
      tryCatch(if (takes_error(on_finish)) on_finish(tracker, failure) else on_finish(tracker), error = failed)
    }
  })
  remember <- function(condition) failure <<- condition
  result <- withVisible(withCallingHandlers(expr, error = remember, interrupt = remember))
  is_done <- TRUE
  value <- result$value
  if (!typeof(value) %in% c("NULL", "environment", "symbol", "externalptr", "weakref", "builtin", "special")) {
    # Unlike `attr<-`, structure() does not copy large vectors.
    value <- structure(value, tracker = tracker)
  }
  if (result$visible) value else invisible(value)
}

takes_error <- function(on_finish) {
  parameters <- names(formals(args(on_finish)))
  length(parameters) > 1 || identical(parameters, "...")
}

# Data frame of `tracker$phases()`; `NA` where nothing was measured.
phase_frame <- function(phases) {
  columns <- c(
    "times", "seconds", "cpu_seconds", "cpu_usage", "memory_peak_kib", "gpu_usage", "vram_peak_mib", "read_bytes",
    "write_bytes", "recv_bytes", "sent_bytes"
  )
  figure <- function(column) {
    vapply(phases, function(phase) if (is.null(phase[[column]])) NA_real_ else as.numeric(phase[[column]]), 0)
  }
  names <- vapply(phases, function(phase) phase$name, "")
  data.frame(name = names, sapply(columns, figure, simplify = FALSE))
}
