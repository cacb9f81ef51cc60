#' Track the resource usage of this R session or another process
#'
#' A `ResourceTracker` records CPU, memory, disk and GPU usage of a process and its descendants, and of the whole machine.
#' It samples in a native thread that never calls R. The session is neither blocked nor slowed, and sampling goes on while
#' R computes.
#'
#' Errors are conditions of class `resource_tracker_error`, with a second class for the kind: `resource_tracker_value_error`, `_state_error`, `_process_error`, `_io_error`, `_format_error`,
#' `_unavailable_error` or `_internal_error`. Values that were not measured are `NA`; unknown facts are `NULL`.
#'
#' A tracker is read-only in a process forked by [parallel::mclapply()]; only the parent can stop it.
#'
#' @section Recordings:
#' `ResourceTracker$load(file)`, `ResourceTracker$loads(text)` and `ResourceTracker$from_snapshot(snapshot)` load a
#' recording from a file, JSON text or a snapshot as a stopped tracker. The command line, Python and R share one file
#' format.
#'
#' @examples
#' tracker <- ResourceTracker$new(interval = 0.1, discover_cloud = FALSE)
#' total <- sum(sqrt(seq_len(1e6)))
#' tracker$wait_for_samples(2)
#' tracker$stop()
#' tracker$stats()
#' tracker$recommend_resources()
#' str(tracker$process_metrics)
#' @export
ResourceTracker <- R6Class("ResourceTracker",
  cloneable = FALSE, # two objects must not own one recording
  public = list(
    #' @description Creates a tracker and starts it.
    #' @param pid Process to track; this R session by default.
    #' @param children Include descendants of the process.
    #' @param interval Seconds between two samples, 0.001 to 86,400.
    #' @param autostart Start now.
    #' @param track_processes Record the process and its descendants.
    #' @param track_system Record the machine.
    #' @param discover_server Read CPUs, memory and limits of the machine.
    #' @param discover_cloud Detect the cloud of the machine.
    initialize = function(pid = Sys.getpid(), children = TRUE, interval = 1, autostart = TRUE, track_processes = TRUE,
                          track_system = TRUE, discover_server = TRUE, discover_cloud = TRUE) {
      private$session <- core(session_new(
        number(pid, "pid"), flag(children, "children"), number(interval, "interval"), flag(autostart, "autostart"),
        flag(track_processes, "track_processes"), flag(track_system, "track_system"),
        flag(discover_server, "discover_server"), flag(discover_cloud, "discover_cloud"),
        # R removes this folder on exit, with the files of forked workers, which end without finalizers.
        tempdir()
      ))
      if (autostart) self$start()
    },

    #' @description Starts recording. Raises an error if the tracker is running or was stopped.
    start = function() {
      core(session_start(private$session))
      private$warn()
      invisible(self)
    },

    #' @description Takes the last sample and stops the sampler. The data stay. Calling it again has no effect.
    stop = function() {
      core(session_stop(private$session))
      private$warn()
      invisible(self)
    },

    #' @description Stops and removes temporary files. Statistics stay, tables do not.
    cleanup = function() {
      core(session_remove_files(private$session))
      invisible(self)
    },

    #' @description Waits for `n` samples. Raises an error after `timeout` seconds, or at once if the tracker has stopped.
    #'   An interrupt ends the wait.
    #' @param n Number of samples.
    #' @param timeout Maximum time in seconds.
    wait_for_samples = function(n = 1, timeout = 5) {
      n <- number(n, "n")
      timeout <- number(timeout, "timeout")
      began <- proc.time()[["elapsed"]]
      repeat {
        pause <- core(session_wait_on(private$session, n, proc.time()[["elapsed"]] - began, timeout))
        if (is.null(pause)) break
        # Sys.sleep() handles interrupts and event loops.
        Sys.sleep(pause)
      }
      invisible(self)
    },

    #' @description Returns both tables joined by sample: `timestamp`, columns of the machine, columns of the process.
    #' @param bytes Convert memory, VRAM and disk space to bytes.
    #' @param human_names Use human-readable column names.
    #' @param system_prefix,process_prefix Prefixes of column names; `"system_"` and `"process_"` by default, `"System "`
    #'   and `"Process "` with `human_names`.
    #' @return A data frame.
    get_combined_metrics = function(bytes = FALSE, human_names = FALSE, system_prefix = NULL, process_prefix = NULL) {
      core(session_combined(
        private$session, flag(bytes, "bytes"), flag(human_names, "human_names"),
        text_or_null(system_prefix, "system_prefix"), text_or_null(process_prefix, "process_prefix")
      ))
    },

    #' @description Returns means, maxima and sums of all samples so far.
    #' @param specs `NULL` for the default statistics, or a list of named functions by column of
    #'   [get_combined_metrics][ResourceTracker], such as `list(process_memory = list(median = median))`. `NA` values are
    #'   removed first.
    #' @return A list by column of lists by statistic.
    stats = function(specs = NULL) {
      if (is.null(specs)) return(shown(core(session_stats(private$session))))
      shown(custom_stats(self$get_combined_metrics(), specs))
    },

    #' @description Recommends CPUs, memory (MB), GPUs and VRAM (MB) for the next run. Waits up to five intervals for the
    #'   first sample.
    #' @param historical_stats List of the `stats()` of earlier runs.
    recommend_resources = function(historical_stats = list()) {
      private$wait_for_first()
      shown(core(session_recommend(private$session, runs(historical_stats))))
    },

    #' @description Returns the cheapest server with the resources of [recommend_resources][ResourceTracker]. Servers and
    #'   prices come from a public service, or from the built-in catalogue if there is no answer within 2 seconds.
    #' @param ... Filters by name, such as `vendor_id = "aws"`, `region`, `country`, `continent` or `architecture`.
    #' @param historical_stats List of the `stats()` of earlier runs.
    #' @return A list with the fields of the server; `NULL` if no server fits.
    recommend_server = function(..., historical_stats = list()) {
      filters <- list(...)
      if (length(filters) && (is.null(names(filters)) || any(names(filters) == ""))) {
        raise("value", "filters need names, such as `vendor_id = \"aws\"`")
      }
      private$wait_for_first()
      shown(core(session_recommend_server(private$session, runs(historical_stats), filters)))
    },

    #' @description Returns the report as one HTML page: usage, sizing of this run and recommendation for the next.
    #' @param integration Name for the footer.
    #' @param historical_stats List of the `stats()` of earlier runs.
    #' @param status_failed Mark the job as failed.
    #' @return A [Report].
    report = function(integration = "R", historical_stats = list(), status_failed = FALSE) {
      private$wait_for_first()
      html <- core(session_report(
        private$session, text(integration, "integration"), runs(historical_stats), flag(status_failed, "status_failed")
      ))
      Report$new(html)
    },

    #' @description Returns the recording so far.
    #' @return A list with `metadata`, `server_info`, `cloud_info` and the tables as data frames.
    snapshot = function() core(session_snapshot(private$session)),

    #' @description Returns the snapshot as JSON text.
    dumps = function() core(session_dumps(private$session)),

    #' @description Writes the snapshot to a file atomically, as gzipped JSON.
    #' @param file Path of the file.
    dump = function(file) {
      core(session_dump(private$session, file_path(file, "file")))
      invisible(self)
    },

    #' @description Loads a recording as a new tracker, like `ResourceTracker$load(file)`. This tracker stays unchanged.
    #' @param file Path of a file with gzipped or plain JSON.
    load = function(file) tracker_of(session_load(file_path(file, "file"))),

    #' @description Prints state, process, interval and number of samples.
    #' @param ... Not used.
    print = function(...) {
      cat(format(self), sep = "\n")
      invisible(self)
    },

    #' @description Returns the lines that `print` shows.
    #' @param ... Not used.
    format = function(...) {
      state <- if (self$running) "running" else if (is.null(self$start_time)) "not started" else "stopped"
      c(
        sprintf("<ResourceTracker> %s: process %d, every %s s", state, self$pid, format(self$interval)),
        sprintf("  %d samples%s", self$n_samples, since(self$start_time))
      )
    }
  ),
  active = list(
    #' @field running Whether the tracker is recording.
    running = function(value) read_only("running", value, core(session_running(private$session))),

    #' @field pid Id of the tracked process.
    pid = function(value) read_only("pid", value, private$settings()$pid),

    #' @field children Whether descendants of the process are included.
    children = function(value) read_only("children", value, private$settings()$children),

    #' @field interval Seconds between two samples.
    interval = function(value) read_only("interval", value, private$settings()$interval),

    #' @field n_samples Number of samples so far.
    n_samples = function(value) read_only("n_samples", value, core(session_rows(private$session))),

    #' @field start_time Time of the baseline; `NULL` before the start.
    start_time = function(value) read_only("start_time", value, moment(private$settings()$start_time)),

    #' @field stop_time Time of the stop; `NULL` before the stop.
    stop_time = function(value) read_only("stop_time", value, moment(private$settings()$stop_time)),

    #' @field system_metrics Data frame of the machine, one row per sample.
    system_metrics = function(value) read_only("system_metrics", value, private$table("system_metrics")),

    #' @field process_metrics Data frame of the process and its descendants, one row per sample.
    process_metrics = function(value) read_only("process_metrics", value, private$table("process_metrics")),

    #' @field extra_metrics Data frame of further columns: peaks, pressure, limits, the cost of the tracker, each GPU.
    extra_metrics = function(value) read_only("extra_metrics", value, private$table("extra_metrics")),

    #' @field server_info Facts about the machine, and whether the job seems to have it alone; `NULL` if discovery is off.
    server_info = function(value) read_only("server_info", value, shown(core(session_server_info(private$session)))),

    #' @field cloud_info Cloud vendor, instance type and region; `NULL` if discovery is off or unfinished.
    cloud_info = function(value) read_only("cloud_info", value, shown(core(session_cloud_info(private$session))))
  ),
  private = list(
    session = NULL,
    settings = function() core(session_settings(private$session)),
    table = function(name) core(session_table(private$session, name)),
    wait_for_first = function() self$wait_for_samples(1, timeout = 5 * self$interval),
    warn = function() for (message in core(session_take_warnings(private$session))) caution(message),
    # Runs at garbage collection, at the latest when R exits. It has no effect in a forked child.
    finalize = function() if (!is.null(private$session)) try(core(session_remove_files(private$session)), silent = TRUE)
  )
)

ResourceTracker$load <- function(file) tracker_of(session_load(file_path(file, "file")))
ResourceTracker$loads <- function(s) tracker_of(session_loads(text(s, "s")))
ResourceTracker$from_snapshot <- function(snapshot) tracker_of(session_from_snapshot(snapshot))

# Wraps an existing session.
tracker_of <- function(result) {
  session <- core(result)
  tracker <- ResourceTracker$new(autostart = FALSE)
  tracker$.__enclos_env__$private$session <- session
  tracker
}

# A read-only field. `found` is evaluated only on access.
read_only <- function(name, value, found) {
  if (missing(value)) return(found)
  raise("value", sprintf("`%s` cannot be set", name))
}

# Accepts the `stats()` of one run as a list of one run.
runs <- function(historical_stats) {
  if (!is.list(historical_stats)) raise("value", "`historical_stats` must be a list of values of `stats()`")
  if (is.null(names(historical_stats))) unname(lapply(historical_stats, unclass)) else list(unclass(historical_stats))
}

custom_stats <- function(frame, specs) {
  if (nrow(frame) == 0) raise("state", "No metrics collected (yet)")
  if (!is.list(specs) || is.null(names(specs))) raise("value", "`specs` must be a list of functions by column")
  Map(function(column, functions) {
    if (!column %in% names(frame)) raise("value", sprintf("column `%s` not found", column))
    if (is.null(names(functions))) raise("value", sprintf("the functions for `%s` need names", column))
    cells <- frame[[column]]
    lapply(functions, function(figure) match.fun(figure)(cells[!is.na(cells)]))
  }, names(specs), specs)
}

since <- function(time) if (is.null(time)) "" else format(time, " since %Y-%m-%d %H:%M:%S")
