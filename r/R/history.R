#' Runs of the history
#'
#' Returns the saved runs of R, Python and the command `resource-tracker`, newest first.
#'
#' @param job Only runs of this job.
#' @param tag Only runs with this tag: `"KEY"` or `"KEY=VALUE"`.
#' @return A data frame with one row per run. Its columns are the keys of `as.list(tracker)` without nested lists; `tags`
#'   and `command` are text. `start_time` is POSIXct; unknown values are `NA`.
#' @examples
#' runs <- resource_tracker_history()
#' runs[c("job", "status", "duration_seconds", "memory_peak_bytes")]
#' @export
resource_tracker_history <- function(job = NULL, tag = NULL) {
  core(history_table(text_or_null(job, "job"), text_or_null(tag, "tag")))
}
