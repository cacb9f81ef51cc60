# Compares reported figures of this process with those of the kernel.

proc_field <- function(file, field) {
  lines <- readLines(file)
  as.numeric(sub("\\D+(\\d+).*", "\\1", lines[startsWith(lines, field)]))
}

test_that("CPU time is that of this process without the sampling thread", {
  tracker <- recorded()
  reported <- sum(tracker$process_metrics$utime, tracker$process_metrics$stime)
  # The kernel counts the sampling thread as part of this process; the tracker reports it separately.
  spent <- attr(tracker, "spent") - sum(tracker$extra_metrics$tracker_cpu)
  # R measures CPU time in milliseconds. The rows include CPU time between `new` and the work.
  expect_gte(reported, 0.98 * spent - 0.005)
  expect_lte(reported, 1.02 * spent + 0.1)
})

test_that("memory is the PSS of this process", {
  # The kernel's figure is read right beside the only sample, which `stop` takes. The size of a new vector does not tell
  # the growth: malloc may place it in freed memory that is still resident, so that PSS does not change.
  expect_pss <- function() {
    tracker <- ResourceTracker$new(interval = 3600, children = FALSE, discover_cloud = FALSE)
    pss_kb <- proc_field("/proc/self/smaps_rollup", "Pss:")
    tracker$stop()
    expect_equal(tracker$process_metrics$memory, pss_kb, tolerance = 0.05)
  }
  invisible(gc())
  expect_pss()
  big <- numeric(8e6) + 1 # 64 MB, each page touched
  invisible(gc())
  expect_pss()
  expect_equal(sum(big), 8e6) # `big` is in use until here
})

test_that("bytes written to storage are counted", {
  file <- tempfile(tmpdir = getwd())
  on.exit(unlink(file))
  before <- proc_field("/proc/self/io", "write_bytes")
  tracker <- ResourceTracker$new(interval = 3600, children = FALSE, discover_cloud = FALSE)
  connection <- file(file, "wb")
  writeBin(raw(4e6), connection)
  close(connection)
  after <- proc_field("/proc/self/io", "write_bytes")
  tracker$stop()
  # tmpfs writes nothing, and the kernel's counter shows that. The file of the rows adds a page.
  expect_lte(abs(tracker$process_metrics$write_bytes - (after - before)), 65536)
})

test_that("figures of the machine match the kernel", {
  tracker <- ResourceTracker$new(interval = 3600, track_processes = FALSE, discover_cloud = FALSE)
  # Read before and after the sample, since other processes use memory too.
  free_kb <- proc_field("/proc/meminfo", "MemFree")
  tracker$stop()
  free_kb <- range(free_kb, proc_field("/proc/meminfo", "MemFree"))
  row <- tracker$system_metrics
  total_kb <- proc_field("/proc/meminfo", "MemTotal")
  expect_identical(row$memory_free + row$memory_used + row$memory_buffers + row$memory_cached, total_kb)
  expect_gte(row$memory_free, 0.9 * free_kb[1])
  expect_lte(row$memory_free, 1.1 * free_kb[2])
  processes <- length(grep("^[0-9]+$", list.files("/proc")))
  expect_lte(abs(row$processes - processes), 25)
  expect_gte(row$disk_space_total_gb, row$disk_space_used_gb + row$disk_space_free_gb - 0.01)
  expect_gt(row$disk_space_used_gb, 0)
})

# Returns how long this process could not run, until the file `end` exists.
stalls <- function(end) {
  stalled <- 0
  before <- proc.time()[["elapsed"]]
  while (!file.exists(end)) {
    Sys.sleep(0.005)
    now <- proc.time()[["elapsed"]]
    late <- now - before - 0.005
    if (late > 0.03) stalled <- stalled + late
    before <- now
  }
  stalled
}

# Run-queue delay of the sampling thread, by the kernel's account.
sampler_waited_s <- function() {
  tasks <- list.files("/proc/self/task", full.names = TRUE)
  # A thread that has just ended has no name.
  name_of <- function(task) {
    c(tryCatch(suppressWarnings(readLines(file.path(task, "comm"))), error = function(e) character()), "")[1]
  }
  samplers <- tasks[vapply(tasks, name_of, "") == "resource-tracke"]
  sum(vapply(samplers, function(task) scan(file.path(task, "schedstat"), quiet = TRUE)[2], 0)) / 1e9
}

test_that("rows stay on the grid while R runs long C code", {
  numbers <- runif(4e6)
  end <- tempfile()
  on.exit(unlink(end))
  beside <- parallel::mcparallel(stalls(end))
  tracker <- ResourceTracker$new(interval = 0.1, discover_cloud = FALSE)
  began <- proc.time()[["elapsed"]]
  # Each call runs C code for a long time.
  while (proc.time()[["elapsed"]] - began < 1.5) sort(numbers, method = "quick")
  held <- proc.time()[["elapsed"]] - began
  waited <- sampler_waited_s()
  tracker$stop()
  file.create(end)
  stalled <- parallel::mccollect(beside)[[1]] + waited
  # A row may be late only by the time that the machine or the sampling thread could not run.
  expect_lte(sum(tracker$extra_metrics$missed_ticks), stalled / 0.1)
  expect_gte(tracker$n_samples, (held - stalled) / 0.1 - 2)
  expect_lt(stalled, held)
})

test_that("nothing is printed to the console", {
  program <- c(
    "library(resource.tracker)",
    "tracker <- ResourceTracker$new(interval = 0.05)",
    "tracker$wait_for_samples(2)",
    "for (code in expression(tracker$start(), ResourceTracker$load('/no'), ResourceTracker$new(interval = 0),",
    "                        tracker$recommend_server(x = 1), ResourceTracker$new(pid = 'x')))",
    "  tryCatch(eval(code), resource_tracker_error = function(e) NULL)",
    "invisible(tracker$recommend_server())"
  )
  expect_identical(run_program(program), character())
})

test_that("an internal error is raised as a condition", {
  # An argument of the wrong type, which public functions never pass on, stands for an internal error.
  wrong <- quote(resource.tracker:::core(resource.tracker:::session_loads(42)))
  expect_silent(error <- expect_error(eval(wrong), class = "resource_tracker_internal_error"))
  expect_match(conditionMessage(error), "please report this")
})
