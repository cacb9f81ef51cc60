#' Track the resource usage of this R session or another process
#'
#' A `ResourceTracker` records CPU, memory, disk and GPU usage of a process and its descendants, and of the whole machine.
#' It samples in a native thread that never calls R. The session is neither blocked nor slowed, and sampling goes on while
#' R computes.
#'
#' Errors are conditions of class `resource_tracker_error`, with a second class for the kind:
#' `resource_tracker_value_error`, `_state_error`, `_process_error`, `_io_error`, `_format_error`, `_unavailable_error` or
#' `_internal_error`. Values that were not measured are `NA`; unknown facts are `NULL`.
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
    #' @param job Name of the job; `RESOURCE_TRACKER_JOB` by default. A run with a name is saved in the history when it
    #'   stops, and `advise()` uses the earlier runs of that name.
    #' @param tags Named character vector or list of strings, such as `c(team = "vision")`; added to those of
    #'   `RESOURCE_TRACKER_TAGS`.
    #' @param input Files and folders that the job reads. Their total size is recorded.
    #' @param store Address of a store of many machines, which gets the run when it is saved in the history; `""` for none.
    #'   `RESOURCE_TRACKER_STORE`, or `store` of the user's settings, by default.
    initialize = function(pid = Sys.getpid(), children = TRUE, interval = 1, autostart = TRUE, track_processes = TRUE,
                          track_system = TRUE, discover_server = TRUE, discover_cloud = TRUE, job = NULL, tags = NULL,
                          input = NULL, store = NULL) {
      private$session <- core(session_new(
        number(pid, "pid"), flag(children, "children"), number(interval, "interval"), flag(autostart, "autostart"),
        flag(track_processes, "track_processes"), flag(track_system, "track_system"),
        flag(discover_server, "discover_server"), flag(discover_cloud, "discover_cloud"),
        # R removes this folder on exit, with the files of forked workers, which end without finalizers.
        tempdir(), text_or_null(job, "job"), tags_of(tags), file_paths(input, "input"),
        text_or_null(store, "store")
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

    #' @description Recommends CPUs, memory (MiB), GPUs and VRAM (MiB) for the next run. Waits up to five intervals for the
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
      filters <- filters_of(...)
      private$wait_for_first()
      shown(core(session_recommend_server(private$session, runs(historical_stats), filters)))
    },

    #' @description Advises the size to request for the next run, from this run and the earlier runs of its job: CPUs by
    #'   predicted time, memory by the history, GPUs, warnings, servers and costs. Waits up to five intervals for the first
    #'   sample.
    #' @param slowdown How much longer the next run may take with fewer CPUs, in percent.
    #' @param earlier_runs Number of earlier runs of the job that the advice is based on.
    #' @param input Files and folders that the next run reads. Memory that grows with the input is requested for their size.
    #' @param ... Filters of servers by name, as for `recommend_server`.
    #' @param store Address of a store, whose runs of the job on other machines count beside those of the history.
    #' @return A list with `request`, the reasons (`cpu`, `memory`, `gpu`), `warnings`, `findings`, `requests` (text to
    #'   paste for schedulers), `servers`, `what_if` (predicted time and cost by number of CPUs) and `cost`.
    advise = function(slowdown = 5, earlier_runs = 100, input = NULL, ..., store = NULL) {
      slowdown <- number(slowdown, "slowdown")
      if (slowdown < 0 || slowdown > 1000) raise("value", "`slowdown` must be a number from 0 to 1000")
      earlier_runs <- whole_number(earlier_runs, "earlier_runs")
      input <- file_paths(input, "input")
      filters <- filters_of(...)
      private$wait_for_first()
      advice <- session_advise(private$session, slowdown, earlier_runs, input, filters, text_or_null(store, "store"))
      advice <- core(advice)
      private$warn()
      shown(advice, "resource_tracker_advice")
    },

    #' @description Starts a phase of the job, which lasts until the next mark. Has no effect before the start and after the
    #'   end. Forked workers can mark too.
    #' @param name Name of the phase, up to 60 characters.
    mark = function(name) {
      core(session_mark(private$session, text(name, "name")))
      invisible(self)
    },

    #' @description Evaluates an expression as a phase. After it, the phase that this process had marked before goes on.
    #' @param name Name of the phase.
    #' @param expr Expression to evaluate.
    #' @return The value of the expression.
    phase = function(name, expr) {
      before <- core(session_mark(private$session, text(name, "name")))
      on.exit(core(session_mark(private$session, before)))
      expr
    },

    #' @description Returns what each phase used so far: how often it began, duration, CPU time, mean number of CPUs, peak
    #'   memory, GPU, disk and network. The time before the first mark is the phase `"start"`.
    #' @return A data frame with a row for each phase; without rows if nothing was marked.
    phases = function() phase_frame(core(session_phases(private$session))),

    #' @description Marks the run as failed. Call it before `stop`.
    #' @param error The condition that ended the job, or its text.
    set_error = function(error) {
      if (inherits(error, "condition")) error <- paste(c(class(error)[1], conditionMessage(error)), collapse = ": ")
      core(session_set_error(private$session, text(error, "error")))
      invisible(self)
    },

    #' @description Saves the recording so far in the history that `resource-tracker list` shows. Saving again replaces it.
    #'   A run with a job name is saved when it stops.
    #' @return The id of the run in the history.
    save = function() core(session_save(private$session)),

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

    #' @description Writes the combined table to a file atomically.
    #' @param path Path of the file. An existing file is replaced.
    #' @param format `"csv"`, `"jsonl"`, `"parquet"`, or `"json"` for the whole recording; by default the extension of the
    #'   path.
    #' @param bytes Convert memory, VRAM and disk space to bytes.
    #' @param human_names Use human-readable column names.
    export = function(path, format = NULL, bytes = FALSE, human_names = FALSE) {
      core(session_export(
        private$session, file_path(path, "path"), text_or_null(format, "format"), flag(bytes, "bytes"),
        flag(human_names, "human_names")
      ))
      invisible(self)
    },

    #' @description Loads a recording as a new tracker, like `ResourceTracker$load(file)`. This tracker stays unchanged.
    #' @param file Path of a file with gzipped or plain JSON.
    load = function(file) tracker_of(session_load(file_path(file, "file"))),

    #' @description Returns the facts and figures of the run, like `as.list(tracker)`.
    #' @return A list with the keys of `resource-tracker show --json` without advice: `id`, `job`, `tags`, `status`,
    #'   `command`, `start_time`, `duration_seconds`, `memory_peak_bytes` and more; `NULL` where unknown.
    as_list = function() core(session_run(private$session)),

    #' @description Returns what explains the run so far.
    #' @return A list with `verdict` (why the run failed; `NULL` if it did not), `waiting` (what it waited for: `cause`,
    #'   `sentence`, `parts`; `NULL` if it was not measured), `programs` and `phases` (what each of them used).
    explain = function() core(session_explain(private$session)),

    #' @description Prints state, process, interval, number of samples, mean CPU usage and peak memory.
    #' @param ... Not used.
    print = function(...) {
      cat(format(self), sep = "\n")
      invisible(self)
    },

    #' @description Returns the lines that `print` shows.
    #' @param ... Not used.
    format = function(...) {
      run <- self$as_list()
      state <- if (self$running) "running" else if (is.null(self$start_time)) "not started" else "stopped"
      c(
        sprintf("<ResourceTracker> %s: process %d, every %s s", state, self$pid, format(self$interval)),
        sprintf("  %d %s%s", self$n_samples, if (self$n_samples == 1) "sample" else "samples", since(self$start_time)),
        if (!is.null(run$memory_peak_bytes)) {
          sprintf("  CPU %.2f cores on average, peak memory %s", run$cpu_mean_cores, mib(run$memory_peak_bytes))
        }
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

#' Tracker as a list, a data frame or a summary
#'
#' `as.list()` returns the facts and figures of the run, the same as Python's `as_dict()` and `resource-tracker show --json`
#' without advice. `summary()` returns them as a list that prints like [utils::str()], with `start_time` as POSIXct.
#' `as.data.frame()` returns the combined table.
#'
#' @param x,object A [ResourceTracker].
#' @param row.names,optional Not used.
#' @param ... Arguments of `get_combined_metrics` for `as.data.frame()`, else not used.
#' @return A list or a data frame.
#' @examples
#' tracker <- ResourceTracker$new(interval = 0.1, discover_cloud = FALSE)
#' tracker$wait_for_samples(2)$stop()
#' summary(tracker)
#' head(as.data.frame(tracker))
#' @name as.list.ResourceTracker
#' @export
as.list.ResourceTracker <- function(x, ...) x$as_list()

#' @rdname as.list.ResourceTracker
#' @export
summary.ResourceTracker <- function(object, ...) {
  run <- object$as_list()
  run["start_time"] <- list(moment(run$start_time))
  shown(run)
}

#' @rdname as.list.ResourceTracker
#' @export
as.data.frame.ResourceTracker <- function(x, row.names = NULL, optional = FALSE, ...) x$get_combined_metrics(...)

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

mib <- function(bytes) sprintf("%.0f MiB", bytes / 2^20)

since <- function(time) if (is.null(time)) "" else format(time, " since %Y-%m-%d %H:%M:%S")
