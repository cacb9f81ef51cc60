-- Which jobs to resize first?
SELECT job, count(*) AS runs,
  max_by(asked_cpus, start_time) AS asked_cpus, max_by(advice_cpus, start_time) AS advice_cpus,
  round(max_by(asked_memory_bytes, start_time) / 1073741824, 1) AS asked_gib,
  round(max_by(advice_memory_bytes, start_time) / 1073741824, 1) AS advice_gib,
  coalesce(sum(savings_usd), 0) AS saved_usd
FROM runs
GROUP BY job
ORDER BY saved_usd DESC
LIMIT 20;

-- Who wastes most GPU hours?
SELECT "user", sum(gpu_hours_asked) AS gpu_hours_asked, sum(gpu_hours_wasted) AS gpu_hours_wasted,
  round(100 * sum(gpu_hours_wasted) / sum(gpu_hours_asked)) AS wasted_percent
FROM runs
WHERE gpu_hours_asked > 0
GROUP BY "user"
ORDER BY gpu_hours_wasted DESC;

-- Which nodes fail most?
SELECT node, count(*) AS recordings, sum(CASE WHEN is_failed THEN 1 ELSE 0 END) AS failed,
  avg(CASE WHEN is_failed THEN 1e0 ELSE 0e0 END) AS failure_rate,
  (SELECT avg(CASE WHEN is_failed THEN 1e0 ELSE 0e0 END) FROM runs) AS failure_rate_of_fleet
FROM runs
GROUP BY node
HAVING count(*) >= 10
ORDER BY failure_rate DESC;

-- How much of its memory request does each job need?
SELECT job, count(*) AS runs, round(max(asked_memory_bytes) / 1073741824, 1) AS asked_gib,
  round(max(memory_peak_bytes) / 1073741824, 1) AS highest_peak_gib,
  round(100 * max(memory_peak_bytes / asked_memory_bytes)) AS highest_percent,
  round(100 * avg(memory_peak_bytes / asked_memory_bytes)) AS mean_percent
FROM runs
WHERE asked_memory_bytes > 0 AND memory_peak_bytes IS NOT NULL
GROUP BY job
ORDER BY highest_percent;

-- Which distributed programs are unbalanced?
WITH attempts AS (
  SELECT *, row_number() OVER (PARTITION BY distributed, ranks, rank ORDER BY start_time, id) AS attempt
  FROM runs
  WHERE distributed IS NOT NULL
)
SELECT distributed, attempt, max(job) AS job, count(*) AS recordings, count(DISTINCT node) AS nodes,
  max(cpu_seconds) / nullif(avg(cpu_seconds), 0) AS imbalance, max_by(rank, cpu_seconds) AS busiest_rank
FROM attempts
GROUP BY distributed, ranks, attempt
HAVING count(cpu_seconds) > 1 AND sum(cpu_seconds) > 0
ORDER BY imbalance DESC;

-- Do failures and lack of memory become more frequent?
SELECT date_trunc('week', start_time) AS week, count(*) AS recordings,
  1e2 * sum(CASE WHEN is_failed THEN 1 ELSE 0 END) / count(*) AS failed_percent,
  1e2 * sum(CASE WHEN out_of_memory THEN 1 ELSE 0 END) / count(*) AS out_of_memory_percent
FROM runs
GROUP BY 1
ORDER BY 1;

-- What does each team cost?
SELECT json_extract_string(tags, '/team') AS team, count(*) AS recordings,
  sum(cost_usd) AS cost_usd, sum(savings_usd) AS savings_usd
FROM runs
GROUP BY 1
ORDER BY cost_usd DESC NULLS LAST;

-- Which jobs wait for disk?
SELECT job, count(*) AS runs, round(sum(wait_disk_seconds) / 3600, 2) AS disk_hours,
  round(100 * sum(wait_disk_seconds) / nullif(sum(duration_seconds), 0)) AS percent_of_time
FROM runs
WHERE wait_disk_seconds IS NOT NULL
GROUP BY job
HAVING sum(wait_disk_seconds) > 0.25 * sum(duration_seconds)
ORDER BY disk_hours DESC;

-- Whose memory grows?
SELECT job, count(*) AS runs,
  round(regr_slope(memory_peak_bytes, epoch(start_time)) * 86400 / 1048576, 1) AS mib_a_day,
  round(max(memory_peak_bytes) / 1073741824, 1) AS highest_peak_gib,
  round(max_by(asked_memory_bytes, start_time) / 1073741824, 1) AS asked_gib
FROM runs
WHERE NOT is_failed
GROUP BY job
HAVING count(*) >= 10 AND max(memory_peak_bytes) > min(memory_peak_bytes)
  AND corr(memory_peak_bytes, epoch(start_time)) > 0.8
ORDER BY mib_a_day DESC;

-- Which runs held GPUs that were idle?
SELECT id, job, "user", node, start_time, asked_gpus, gpu_mean_gpus, gpu_hours_wasted, cost_usd
FROM runs
WHERE gpu_hours_asked > 0 AND coalesce(gpu_mean_gpus, 0) < 0.1 * asked_gpus
ORDER BY gpu_hours_wasted DESC
LIMIT 100;

-- Of the samples: when did each run need most memory?
SELECT r.job, s.run_id, min(s.timestamp) AS first_row, max(s.process_memory) / 1024e0 AS highest_mib,
  max_by(s.timestamp, s.process_memory) AS highest_at
FROM samples s JOIN runs r ON r.id = s.run_id
GROUP BY 1, 2
ORDER BY highest_mib DESC;
