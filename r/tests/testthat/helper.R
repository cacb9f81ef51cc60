process_columns <- c(
  "timestamp", "pid", "children", "utime", "stime", "cpu_usage", "memory", "read_bytes", "write_bytes", "gpu_usage",
  "gpu_vram", "gpu_utilized"
)
system_columns <- c(
  "timestamp", "processes", "utime", "stime", "cpu_usage", "memory_free", "memory_used", "memory_buffers",
  "memory_cached", "memory_active", "memory_inactive", "disk_read_bytes", "disk_write_bytes", "disk_space_total_gb",
  "disk_space_used_gb", "disk_space_free_gb", "net_recv_bytes", "net_sent_bytes", "gpu_usage", "gpu_vram",
  "gpu_utilized"
)

# CPU seconds of this process; wall time is longer on a busy machine.
cpu_seconds <- function() sum(proc.time()[c("user.self", "sys.self")])

burn <- function(seconds) {
  end <- cpu_seconds() + seconds
  while (cpu_seconds() < end) sum(sqrt(seq_len(1e4)))
}

# 0.25 s of work at 20 rows a second, recorded once for all tests that only read.
recorded <- local({
  tracker <- NULL
  function() {
    if (is.null(tracker)) {
      tracker <<- ResourceTracker$new(interval = 0.05)
      before <- cpu_seconds()
      burn(0.25)
      attr(tracker, "spent") <<- cpu_seconds() - before
      tracker$wait_for_samples(4)$stop()
    }
    tracker
  }
})

short_run <- function(...) {
  ResourceTracker$new(interval = 0.02, discover_cloud = FALSE, ...)$wait_for_samples(2)$stop()
}

# Runs a program in a new R process and returns its output and messages.
run_program <- function(program, ..., environment = character()) {
  file <- tempfile(fileext = ".R")
  on.exit(unlink(file))
  paths <- paste(deparse(.libPaths()), collapse = "")
  writeLines(c(sprintf(".libPaths(%s)", paths), program), file)
  rscript <- file.path(R.home("bin"), "Rscript")
  output <- suppressWarnings(
    system2(rscript, c("--vanilla", file, ...), stdout = TRUE, stderr = TRUE, env = environment)
  )
  status <- attr(output, "status")
  if (!is.null(status)) stop("exit ", status, "\n", paste(output, collapse = "\n"))
  output
}

# An empty folder for temporary files.
scratch_folder <- function() {
  folder <- tempfile("scratch-")
  dir.create(folder)
  folder
}
