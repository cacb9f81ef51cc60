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

#' What the runs of many machines requested, used and wasted
#'
#' Adds up the runs in a store, to which `ResourceTracker$new(store = )`, Python and `resource-tracker run --store` add.
#'
#' @param store Address of the store: a folder.
#' @param by Group runs by `"job"`, `"user"`, `"node"`, `"day"` or the value of a tag: `"tag:KEY"`.
#' @param since Only runs that started at this time or later, a POSIXct or Date.
#' @return A data frame with one row per group, the most savings first. `key` is the job, user, node, day or value of the tag.
#' @examples
#' store <- tempfile()
#' tracker <- ResourceTracker$new(
#'   interval = 0.1, discover_cloud = FALSE, job = "example", store = store
#' )
#' tracker$wait_for_samples(1)
#' tracker$stop()
#' fleet_summary(store)[c("key", "runs", "cpu_hours_used")]
#' @export
fleet_summary <- function(store, by = "job", since = NULL) {
  if (!is.null(since)) {
    if (!inherits(since, c("POSIXct", "Date"))) raise("value", "`since` must be a POSIXct or Date")
    since <- as.numeric(as.POSIXct(since))
  }
  found <- core(fleet_groups(text(store, "store"), text(by, "by"), since))
  if (!is.null(found$warning)) caution(found$warning)
  found$groups
}
