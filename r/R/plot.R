#' Plot what was recorded
#'
#' CPU, memory, disk and network over time, the process beside the machine, with base graphics.
#'
#' @param x A [ResourceTracker].
#' @param ... Given to [graphics::plot()], such as `xlim`.
#' @return `x`, invisibly.
#' @examples
#' tracker <- ResourceTracker$new(interval = 0.1, discover_cloud = FALSE)
#' tracker$wait_for_samples(4)
#' tracker$stop()
#' plot(tracker)
#' @export
plot.ResourceTracker <- function(x, ...) {
  frame <- x$get_combined_metrics(bytes = TRUE)
  if (nrow(frame) == 0) raise("state", "No metrics collected (yet)")
  panels <- list(
    list(title = "CPU (cores)", columns = c("process_cpu_usage", "system_cpu_usage"), scale = 1),
    list(title = "Memory (GiB)", columns = c("process_memory", "system_memory_used"), scale = 2^30),
    list(
      title = "Disk, read and written (MiB)", scale = 2^20,
      columns = c("process_read_bytes", "process_write_bytes", "system_disk_read_bytes", "system_disk_write_bytes")
    ),
    list(title = "Network (MiB)", columns = c("system_net_recv_bytes", "system_net_sent_bytes"), scale = 2^20)
  )
  # A table that is off has no columns here.
  panels <- Filter(function(panel) any(panel$columns %in% names(frame)), panels)
  before <- graphics::par(mfrow = grid_of(length(panels)), mar = c(2.5, 3, 2.5, 0.5))
  on.exit(graphics::par(before))
  for (panel in panels) draw_panel(frame, panel, ...)
  invisible(x)
}

grid_of <- function(panels) if (panels <= 1) c(1, 1) else c(ceiling(panels / 2), 2)

draw_panel <- function(frame, panel, ...) {
  columns <- intersect(panel$columns, names(frame))
  series <- as.matrix(frame[columns]) / panel$scale
  colours <- ifelse(startsWith(columns, "process_"), "#0b6e99", "#8a8a8a")
  # Reads and receives are whole lines, writes and sends dashed ones.
  types <- ifelse(grepl("write|sent", columns), 2, 1)
  top <- max(series, 0, na.rm = TRUE)
  settings <- utils::modifyList(
    list(
      x = range(frame$timestamp), y = c(0, if (top > 0) top else 1), type = "n", xlab = "", ylab = "",
      main = panel$title
    ),
    list(...)
  )
  do.call(graphics::plot, settings)
  for (at in seq_along(columns)) {
    graphics::lines(frame$timestamp, series[, at], col = colours[at], lty = types[at], lwd = 2)
  }
  graphics::legend("topleft", legend = gsub("_", " ", columns), col = colours, lty = types, lwd = 2, bty = "n", cex = 0.8)
}
