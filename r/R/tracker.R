#' Track what this R session, or another process, uses
#'
#' A `ResourceTracker` records the CPU, memory, disk and GPU use of a process and all its descendants, beside the use of
#' the whole machine. It samples in a thread of its own that never calls R: your session is neither blocked nor slowed,
#' and rows keep coming while R computes.
#'
#' Everything that can go wrong is raised as a condition of class `resource_tracker_error`, with a second class for the
#' kind: `resource_tracker_value_error`, `_state_error`, `_process_error`, `_io_error`, `_format_error`,
#' `_unavailable_error` or `_internal_error`. What was not measured is `NA`; what is not known is `NULL`.
#'
#' In a process that [parallel::mclapply()] forks, a tracker of the parent can be read and does nothing else.
#'
#' @section Recordings:
#' `ResourceTracker$load(file)`, `ResourceTracker$loads(text)` and `ResourceTracker$from_snapshot(snapshot)` give a tracker
#' that has recorded what a file, a JSON text or a snapshot holds. Files are the same for the command line, for Python
#' and for R.
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
    #' @description A tracker, which starts at once unless told otherwise.
    #' @param pid Process to follow; this R session by default.
    #' @param children Whether its descendants count too.
    #' @param interval Seconds between two samples, 0.001 to 86,400.
    #' @param autostart Whether to start now.
    #' @param track_processes Whether to record the process and its descendants.
    #' @param track_system Whether to record the machine.
    #' @param discover_server Whether to look at the machine: its CPUs, memory and limits.
    #' @param discover_cloud Whether to look for the cloud that the machine is in.
    initialize = function(pid = Sys.getpid(), children = TRUE, interval = 1, autostart = TRUE, track_processes = TRUE,
                          track_system = TRUE, discover_server = TRUE, discover_cloud = TRUE) {
      private$session <- core(session_new(
        number(pid, "pid"), flag(children, "children"), number(interval, "interval"), flag(autostart, "autostart"),
        flag(track_processes, "track_processes"), flag(track_system, "track_system"),
        flag(discover_server, "discover_server"), flag(discover_cloud, "discover_cloud"),
        # R removes this folder at its end: also what forked workers leave there, whose end is none that we are told of.
        tempdir()
      ))
      if (autostart) self$start()
    },

    #' @description Starts recording; an error when it runs already or has been stopped.
    start = function() {
      core(session_start(private$session))
      private$warn()
      invisible(self)
    },

    #' @description Makes the last row and ends the sampler; the data stay. Once more does nothing.
    stop = function() {
      core(session_stop(private$session))
      private$warn()
      invisible(self)
    },

    #' @description Stops, and removes temporary files: statistics stay, tables do not.
    cleanup = function() {
      core(session_remove_files(private$session))
      invisible(self)
    },

    #' @description Waits until there are `n` samples. An error when the time is up, and at once when no more will come.
    #'   An interrupt ends it at once.
    #' @param n How many samples.
    #' @param timeout Seconds to wait at most.
    wait_for_samples = function(n = 1, timeout = 5) {
      n <- number(n, "n")
      timeout <- number(timeout, "timeout")
      began <- proc.time()[["elapsed"]]
      repeat {
        pause <- core(session_wait_on(private$session, n, proc.time()[["elapsed"]] - began, timeout))
        if (is.null(pause)) break
        # R's own sleep, so that interrupts and event loops get their turn.
        Sys.sleep(pause)
      }
      invisible(self)
    },

    #' @description Both tables side by side: `timestamp`, then the system's columns, then the process's.
    #' @param bytes Whether memory, VRAM and disk space are in bytes.
    #' @param human_names Whether columns have names for people.
    #' @param system_prefix,process_prefix Before the names of the columns; `"system_"` and `"process_"` by default, or
    #'   `"System "` and `"Process "` for people.
    #' @return A data frame.
    get_combined_metrics = function(bytes = FALSE, human_names = FALSE, system_prefix = NULL, process_prefix = NULL) {
      core(session_combined(
        private$session, flag(bytes, "bytes"), flag(human_names, "human_names"),
        text_or_null(system_prefix, "system_prefix"), text_or_null(process_prefix, "process_prefix")
      ))
    },

    #' @description Means, maxima and sums over all samples so far.
    #' @param specs `NULL` for the default figures, or a list by column of [get_combined_metrics][ResourceTracker] that
    #'   holds named functions, such as `list(process_memory = list(median = median))`. The functions see what was
    #'   measured; `NA` is left out.
    #' @return A list by column of lists by figure.
    stats = function(specs = NULL) {
      if (is.null(specs)) return(shown(core(session_stats(private$session))))
      shown(custom_stats(self$get_combined_metrics(), specs))
    },

    #' @description What to ask for next time: CPUs, memory (MB), GPUs and VRAM (MB). Waits up to five intervals for the
    #'   first sample.
    #' @param historical_stats A list of the `stats()` of earlier runs.
    recommend_resources = function(historical_stats = list()) {
      private$wait_for_first()
      shown(core(session_recommend(private$session, runs(historical_stats))))
    },

    #' @description The cheapest server that has what [recommend_resources][ResourceTracker] says. Asks the public
    #'   service for servers and prices, and does without it when it does not answer in 2 seconds.
    #' @param ... Filters by name, such as `vendor_id = "aws"`, `region`, `country`, `continent` or `architecture`.
    #' @param historical_stats A list of the `stats()` of earlier runs.
    #' @return A list with the fields of the server; `NULL` when none fits.
    recommend_server = function(..., historical_stats = list()) {
      filters <- list(...)
      if (length(filters) && (is.null(names(filters)) || any(names(filters) == ""))) {
        raise("value", "filters need names, such as `vendor_id = \"aws\"`")
      }
      private$wait_for_first()
      shown(core(session_recommend_server(private$session, runs(historical_stats), filters)))
    },

    #' @description One self-contained HTML page: what ran, whether it had the right size, what it used, and what to run
    #'   it on next time.
    #' @param integration Named in the footer.
    #' @param historical_stats A list of the `stats()` of earlier runs.
    #' @param status_failed Whether the job has failed.
    #' @return A [Report].
    report = function(integration = "R", historical_stats = list(), status_failed = FALSE) {
      private$wait_for_first()
      html <- core(session_report(
        private$session, text(integration, "integration"), runs(historical_stats), flag(status_failed, "status_failed")
      ))
      Report$new(html)
    },

    #' @description All of the recording as it is now.
    #' @return A list with `metadata`, `server_info`, `cloud_info`, and the tables as data frames.
    snapshot = function() core(session_snapshot(private$session)),

    #' @description The snapshot as JSON text.
    dumps = function() core(session_dumps(private$session)),

    #' @description The snapshot as a gzipped file, written whole or not at all.
    #' @param file Its path.
    dump = function(file) {
      core(session_dump(private$session, file_path(file, "file")))
      invisible(self)
    },

    #' @description A new tracker that has recorded what a file holds; this one stays as it is. The same as
    #'   `ResourceTracker$load(file)`.
    #' @param file Its path, gzipped or plain JSON.
    load = function(file) tracker_of(session_load(file_path(file, "file"))),

    #' @description A few lines about the tracker.
    #' @param ... Not used.
    print = function(...) {
      cat(format(self), sep = "\n")
      invisible(self)
    },

    #' @description The lines that `print` shows.
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
    #' @field running Whether samples are taken.
    running = function(value) read_only("running", value, core(session_running(private$session))),

    #' @field pid The process that is followed.
    pid = function(value) read_only("pid", value, private$settings()$pid),

    #' @field children Whether its descendants count too.
    children = function(value) read_only("children", value, private$settings()$children),

    #' @field interval Seconds between two samples.
    interval = function(value) read_only("interval", value, private$settings()$interval),

    #' @field n_samples Samples so far.
    n_samples = function(value) read_only("n_samples", value, core(session_rows(private$session))),

    #' @field start_time When the baseline was read; `NULL` before the start.
    start_time = function(value) read_only("start_time", value, moment(private$settings()$start_time)),

    #' @field stop_time When recording was stopped; `NULL` before that.
    stop_time = function(value) read_only("stop_time", value, moment(private$settings()$stop_time)),

    #' @field system_metrics A data frame with a row per sample of the machine.
    system_metrics = function(value) read_only("system_metrics", value, private$table("system_metrics")),

    #' @field process_metrics A data frame with a row per sample of the process and its descendants.
    process_metrics = function(value) read_only("process_metrics", value, private$table("process_metrics")),

    #' @field extra_metrics A data frame with what goes beyond the two above: peaks, pressure, limits, our own cost,
    #'   every GPU.
    extra_metrics = function(value) read_only("extra_metrics", value, private$table("extra_metrics")),

    #' @field server_info The machine, and whether it seems to be this job's alone; `NULL` when it is not looked at.
    server_info = function(value) read_only("server_info", value, shown(core(session_server_info(private$session)))),

    #' @field cloud_info The cloud; `NULL` when it is not looked for, or not found out yet.
    cloud_info = function(value) read_only("cloud_info", value, shown(core(session_cloud_info(private$session))))
  ),
  private = list(
    session = NULL,
    settings = function() core(session_settings(private$session)),
    table = function(name) core(session_table(private$session, name)),
    wait_for_first = function() self$wait_for_samples(1, timeout = 5 * self$interval),
    warn = function() for (message in core(session_take_warnings(private$session))) caution(message),
    # When nobody holds the tracker any more, and at R's end at the latest; in a forked child it does nothing.
    finalize = function() if (!is.null(private$session)) try(core(session_remove_files(private$session)), silent = TRUE)
  )
)

ResourceTracker$load <- function(file) tracker_of(session_load(file_path(file, "file")))
ResourceTracker$loads <- function(s) tracker_of(session_loads(text(s, "s")))
ResourceTracker$from_snapshot <- function(snapshot) tracker_of(session_from_snapshot(snapshot))

# A tracker around a session that exists already.
tracker_of <- function(result) {
  session <- core(result)
  tracker <- ResourceTracker$new(autostart = FALSE)
  tracker$.__enclos_env__$private$session <- session
  tracker
}

# A field that is computed when it is looked at; `found` is not evaluated before.
read_only <- function(name, value, found) {
  if (missing(value)) return(found)
  raise("value", sprintf("`%s` cannot be set", name))
}

# The `stats()` of one run is as good as a list of one.
runs <- function(historical_stats) {
  if (!is.list(historical_stats)) raise("value", "`historical_stats` must be a list of what `stats()` gave")
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
