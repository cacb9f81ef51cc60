#' Plot a recording
#'
#' Plots CPU, memory, disk and network of process and machine over time, with base graphics.
#'
#' @param x A [ResourceTracker].
#' @param ... Passed to [graphics::plot()], such as `xlim` in seconds since the start.
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
  # A table that is off has no columns.
  panels <- Filter(function(panel) any(names(panel$series) %in% names(frame)), plot_panels)
  start <- if (is.null(x$start_time)) frame$timestamp[1] else x$start_time
  elapsed <- as.numeric(frame$timestamp - start, units = "secs")
  before <- graphics::par(mfrow = grid_of(length(panels)), mar = c(3, 3, 2.5, 0.5), mgp = c(1.8, 0.6, 0))
  on.exit(graphics::par(before))
  for (panel in panels) draw_panel(frame, elapsed, panel, ...)
  invisible(x)
}

plot_panels <- list(
  list(title = "CPU (cores)", scale = 1, series = c(process_cpu_usage = "process", system_cpu_usage = "machine")),
  list(title = "Memory (GiB)", scale = 2^30, series = c(process_memory = "process", system_memory_used = "machine")),
  list(title = "Disk (MiB per sample)", scale = 2^20, series = c(
    process_read_bytes = "process, read", process_write_bytes = "process, written",
    system_disk_read_bytes = "machine, read", system_disk_write_bytes = "machine, written"
  )),
  list(title = "Network (MiB per sample)", scale = 2^20, series = c(
    system_net_recv_bytes = "machine, received", system_net_sent_bytes = "machine, sent"
  ))
)

grid_of <- function(panels) if (panels <= 1) c(1, 1) else c(ceiling(panels / 2), 2)

draw_panel <- function(frame, elapsed, panel, ...) {
  columns <- intersect(names(panel$series), names(frame))
  cells <- as.matrix(frame[columns]) / panel$scale
  colours <- ifelse(startsWith(columns, "process_"), "#0b6e99", "#8a8a8a")
  # Solid lines for read and received, dashed lines for written and sent.
  types <- ifelse(grepl("write|sent", columns), 2, 1)
  top <- max(cells, 0, na.rm = TRUE)
  settings <- list(
    x = range(0, elapsed), y = c(0, if (top > 0) 1.3 * top else 1), # room for the legend
    type = "n", main = panel$title, xlab = "seconds since the start", ylab = "", las = 1
  )
  do.call(graphics::plot, utils::modifyList(settings, list(...)))
  for (at in seq_along(columns)) graphics::lines(elapsed, cells[, at], col = colours[at], lty = types[at], lwd = 2)
  graphics::legend(
    "top", legend = panel$series[columns], col = colours, lty = types, lwd = 2, bty = "n", cex = 0.8,
    ncol = 2
  )
}
