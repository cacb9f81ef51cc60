test_that("tables are data frames with timestamps and numbers, row by row of the same samples", {
  tracker <- recorded()
  process <- tracker$process_metrics
  system <- tracker$system_metrics
  expect_named(process, process_columns)
  expect_named(system, system_columns)
  for (frame in list(process, system, tracker$extra_metrics)) {
    expect_s3_class(frame, "data.frame", exact = TRUE)
    expect_s3_class(frame$timestamp, "POSIXct")
    expect_true(all(vapply(frame[-1], is.double, NA)))
    expect_equal(nrow(frame), tracker$n_samples)
  }
  expect_gte(nrow(process), 3)
  expect_identical(process$timestamp, system$timestamp)
  expect_true(all(process$pid == Sys.getpid()))
})

test_that("fields hold the settings and are read-only", {
  tracker <- recorded()
  expect_identical(tracker$pid, Sys.getpid())
  expect_identical(c(tracker$children, tracker$running), c(TRUE, FALSE))
  expect_identical(tracker$interval, 0.05)
  expect_s3_class(tracker$start_time, "POSIXct")
  expect_gt(tracker$stop_time, tracker$start_time)
  expect_lt(abs(as.numeric(Sys.time() - tracker$start_time, units = "secs")), 600)
  expect_error(tracker$pid <- 1L, "`pid` cannot be set", class = "resource_tracker_value_error")
})

test_that("a tracker starts once and stops once", {
  tracker <- ResourceTracker$new(autostart = FALSE, interval = 60, discover_cloud = FALSE)
  expect_false(tracker$running)
  expect_null(tracker$start_time)
  expect_identical(tracker$n_samples, 0L)
  expect_error(tracker$stats(), "No metrics collected (yet)", fixed = TRUE, class = "resource_tracker_state_error")
  expect_identical(tracker$start(), tracker)
  expect_true(tracker$running)
  expect_error(tracker$start(), "already running", class = "resource_tracker_state_error")
  tracker$stop()
  stopped <- tracker$stop_time
  tracker$stop()
  expect_identical(tracker$stop_time, stopped)
  expect_error(tracker$start(), "Create a new instance", class = "resource_tracker_state_error")
  expect_identical(tracker$n_samples, 1L, info = "a run shorter than one interval has one row")
})

test_that("wait_for_samples returns, times out, or fails at once if the tracker has stopped", {
  tracker <- ResourceTracker$new(interval = 0.02, discover_cloud = FALSE)
  expect_identical(tracker$wait_for_samples(2), tracker)
  expect_gte(tracker$n_samples, 2)
  took <- system.time(
    expect_error(tracker$wait_for_samples(1e6, timeout = 0.2), "Timed out", class = "resource_tracker_state_error")
  )
  expect_gte(took[["elapsed"]], 0.2)
  tracker$stop()
  took <- system.time(
    expect_error(tracker$wait_for_samples(1e6, timeout = 60), "already stopped", class = "resource_tracker_state_error")
  )
  expect_lt(took[["elapsed"]], 5)
  for (wrong in list("1", c(1, 2), NA, NULL)) {
    expect_error(tracker$wait_for_samples(wrong), "`n` must be one number", class = "resource_tracker_value_error")
  }
})

test_that("the combined table has units, names and prefixes", {
  tracker <- recorded()
  both <- tracker$get_combined_metrics()
  expected <- c("timestamp", paste0("system_", system_columns[-1]), paste0("process_", process_columns[-1]))
  expect_named(both, expected)
  expect_identical(both$process_memory, tracker$process_metrics$memory)
  bytes <- tracker$get_combined_metrics(bytes = TRUE)
  expect_equal(bytes$process_memory, 1024 * both$process_memory)
  expect_equal(bytes$system_disk_space_total_gb, 2^30 * both$system_disk_space_total_gb)
  expect_identical(bytes$process_cpu_usage, both$process_cpu_usage)
  human <- tracker$get_combined_metrics(human_names = TRUE)
  expect_true(all(c("Timestamp", "System free memory", "Process CPU usage", "Process PID") %in% names(human)))
  expect_s3_class(human$Timestamp, "POSIXct")
  own <- tracker$get_combined_metrics(system_prefix = "s.", process_prefix = "p.")
  expect_true(all(c("s.utime", "p.utime") %in% names(own)))
  bare <- tracker$get_combined_metrics(system_prefix = "", process_prefix = "")
  expect_identical(bare$utime, both$process_utime)
  expect_identical(bare$processes, both$system_processes)
})

test_that("statistics are lists by column, with default or custom functions", {
  tracker <- recorded()
  stats <- tracker$stats()
  expect_named(stats, c(
    "process_cpu_usage", "process_memory", "process_gpu_usage", "process_gpu_vram", "process_gpu_utilized",
    "system_disk_space_used_gb", "system_net_recv_bytes", "system_net_sent_bytes", "timestamp"
  ))
  expect_named(stats$process_memory, c("mean", "max"))
  expect_gte(stats$process_memory$max, max(tracker$process_metrics$memory))
  frame <- tracker$get_combined_metrics()
  own <- tracker$stats(list(process_memory = list(middle = median, range = range), system_utime = list(sum = sum)))
  expect_identical(own$process_memory$middle, median(frame$process_memory))
  expect_identical(own$process_memory$range, range(frame$process_memory))
  expect_identical(own$system_utime$sum, sum(frame$system_utime))
  expect_error(tracker$stats(list(x = list(m = mean))), "column `x` not found", class = "resource_tracker_value_error")
  expect_error(tracker$stats(list(process_memory = list(mean))), "need names", class = "resource_tracker_value_error")
})

test_that("the recommendation uses this run and earlier runs", {
  tracker <- recorded()
  resources <- tracker$recommend_resources()
  expect_named(resources, c("cpu", "memory", "gpu", "vram"))
  expect_true(all(vapply(resources, is.integer, NA)))
  busy <- tracker$stats()
  busy$process_cpu_usage$mean <- 15.5
  busy$process_memory$max <- 8 * 2^20
  more <- tracker$recommend_resources(historical_stats = list(busy))
  expect_gt(more$cpu, resources$cpu)
  expect_identical(more$memory, 10240L)
  expect_identical(tracker$recommend_resources(busy), more, info = "one run is accepted as a list of one")
  expect_error(tracker$recommend_resources(list(list(a = 1))), "historical_stats", class = "resource_tracker_error")
  expect_error(tracker$recommend_resources("x"), "historical_stats", class = "resource_tracker_value_error")
})

test_that("the recommended server respects filters, and is NULL if none fits", {
  tracker <- recorded()
  server <- tracker$recommend_server()
  expect_true(all(c("vendor_id", "server_id", "vcpus", "memory_amount", "price", "source", "as_of") %in% names(server)))
  expect_gte(server$memory_amount, tracker$recommend_resources()$memory)
  expect_identical(server$source, "embedded")
  on_aws <- tracker$recommend_server(vendor_id = "aws", historical_stats = list(tracker$stats()))
  expect_identical(on_aws$vendor_id, "aws")
  either <- tracker$recommend_server(vendor_id = c("aws", "gcp"))
  expect_true(either$vendor_id %in% c("aws", "gcp"))
  expect_null(tracker$recommend_server(max_price = 1e-7))
  expect_error(tracker$recommend_server(no_such = 1), "unknown filter `no_such`", class = "resource_tracker_value_error")
  expect_error(tracker$recommend_server("aws"), "need names", class = "resource_tracker_value_error")
})

test_that("a table that is off has no columns anywhere", {
  system <- ResourceTracker$new(interval = 0.05, track_processes = FALSE, discover_cloud = FALSE)$wait_for_samples()$stop()
  expect_identical(dim(system$process_metrics), c(0L, 0L))
  expect_false(any(startsWith(names(system$get_combined_metrics()), "process_")))
  expect_false(any(startsWith(names(system$stats()), "process_")))
  expect_error(system$recommend_resources(), class = "resource_tracker_state_error")
  process <- ResourceTracker$new(interval = 0.05, track_system = FALSE, discover_cloud = FALSE)$wait_for_samples()$stop()
  expect_identical(dim(process$system_metrics), c(0L, 0L))
  expect_false(any(startsWith(names(process$get_combined_metrics()), "system_")))
  expect_identical(process$n_samples, nrow(process$process_metrics))
})

test_that("tables have columns but no rows before the first sample", {
  tracker <- ResourceTracker$new(interval = 3600, discover_cloud = FALSE)
  expect_named(tracker$process_metrics, process_columns)
  expect_identical(nrow(tracker$process_metrics), 0L)
  expect_identical(nrow(tracker$get_combined_metrics()), 0L)
  tracker$cleanup()
})

test_that("a tracker that was not started says so, and one that was cleaned cannot be saved", {
  idle <- ResourceTracker$new(autostart = FALSE)
  expect_error(idle$wait_for_samples(), "not been started", class = "resource_tracker_state_error")
  tracker <- ResourceTracker$new(interval = 0.05, discover_cloud = FALSE)$wait_for_samples()$cleanup()
  file <- tempfile()
  expect_error(tracker$dump(file), "removed by cleanup", class = "resource_tracker_state_error")
  expect_error(tracker$snapshot(), "removed by cleanup", class = "resource_tracker_state_error")
  expect_false(file.exists(file))
})

test_that("server_info and cloud_info are NULL if discovery is off", {
  info <- recorded()$server_info
  expect_true(all(c("os", "vcpus", "memory_mb", "gpu_count", "cpu_limit", "memory_limit_mb") %in% names(info)))
  expect_true(info$allocation %in% c("shared", "dedicated"))
  expect_identical(info$vcpus, length(grep("^processor", readLines("/proc/cpuinfo"))))
  off <- ResourceTracker$new(interval = 60, discover_server = FALSE, discover_cloud = FALSE)$stop()
  expect_null(off$server_info)
  expect_null(off$cloud_info)
})

test_that("the cloud is discovered in the background within a second", {
  tracker <- ResourceTracker$new(interval = 0.05)
  deadline <- Sys.time() + 5
  while (is.null(tracker$cloud_info) && Sys.time() < deadline) Sys.sleep(0.01)
  expect_named(tracker$cloud_info, c("vendor", "instance_type", "region", "discovery_time"))
  expect_lt(tracker$cloud_info$discovery_time, 1.5)
  tracker$stop()
})

test_that("another process is followed until it ends", {
  pid <- as.integer(system("sleep 60 >/dev/null & echo $!", intern = TRUE))
  tracker <- ResourceTracker$new(pid = pid, interval = 0.05, discover_cloud = FALSE)$wait_for_samples(2)
  tools::pskill(pid)
  expect_error(tracker$wait_for_samples(1e6, timeout = 30), "already stopped")
  expect_false(tracker$running)
  expect_true(all(tracker$process_metrics$pid == pid))
  expect_error(ResourceTracker$new(pid = pid), "cannot follow process", class = "resource_tracker_process_error")
})

test_that("invalid arguments are rejected", {
  rejected <- function(...) expect_error(ResourceTracker$new(...), class = "resource_tracker_value_error")
  for (interval in c(0, -1, NaN, Inf, 1e6)) rejected(interval = interval)
  expect_match(conditionMessage(rejected(interval = 0)), "0.001")
  for (pid in list(0, -1, 1.5, "1", NULL, 2^40)) rejected(pid = pid)
  for (truth in list(NA, 1, "TRUE", c(TRUE, FALSE))) rejected(children = truth)
  error <- rejected(interval = 0)
  expect_null(conditionCall(error))
})

test_that("printing a tracker shows its state", {
  tracker <- recorded()
  expect_output(print(tracker), "<ResourceTracker> stopped: process [0-9]+, every 0.05 s\n  [0-9]+ samples since 20")
  idle <- ResourceTracker$new(autostart = FALSE)
  expect_output(print(idle), "not started.*\n  0 samples$")
})

test_that("files are removed by cleanup, by garbage collection and when R exits", {
  folder <- scratch_folder()
  program <- c(
    "library(resource.tracker)",
    "files <- function() length(list.files(tempdir(), '^resource-tracker-'))",
    "new <- function() ResourceTracker$new(interval = 0.05, discover_cloud = FALSE)$wait_for_samples()",
    "tracker <- new()",
    "cat(files(), '')",
    "tracker$cleanup()",
    "stopifnot(!tracker$running, tracker$n_samples >= 1, nrow(tracker$process_metrics) == 0)",
    "cat(files(), '')",
    "tracker <- new()",
    "rm(tracker)",
    "invisible(gc())",
    "cat(files(), '')",
    "tracker <- new()",
    "cat(files(), '')",
    "# A forked worker ends without finalizers.",
    "invisible(parallel::mclapply(1:2, function(n) { own <<- new(); NULL }))",
    "cat(files())"
  )
  expect_identical(run_program(program, environment = paste0("TMPDIR=", folder)), "1 0 0 1 3")
  expect_identical(list.files(folder), character())
})

test_that("without a temporary folder there are statistics and a warning", {
  program <- c(
    "library(resource.tracker)",
    "unlink(tempdir(), recursive = TRUE)",
    "tracker <- withCallingHandlers(",
    "  ResourceTracker$new(interval = 0.05, discover_cloud = FALSE),",
    "  resource_tracker_warning = function(w) { cat(conditionMessage(w)); tryInvokeRestart('muffleWarning') }",
    ")",
    "tracker$wait_for_samples()$stop()",
    "stopifnot(tracker$stats()$process_memory$max > 0, nrow(tracker$process_metrics) == 0)"
  )
  expect_match(run_program(program), "no tables")
})

test_that("a tracker from another process is an error", {
  file <- tempfile(fileext = ".rds")
  on.exit(unlink(file))
  saveRDS(recorded(), file)
  copied <- readRDS(file)
  expect_error(copied$stats(), "another R process", class = "resource_tracker_state_error")
  expect_error(copied$running, "another R process")
})

test_that("package and core have the same version", {
  expect_identical(resource.tracker:::core_version(), as.character(utils::packageVersion("resource.tracker")))
})
