//! Views and the summary in SQL, for engines that read Parquet.
//!
//! In:  the engine and the address of the store. Out: SQL text. The sums are those of `summary`.

use super::summary::{By, SUMS};

/// An engine that reads the dataset.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Engine {
    DuckDb,
    Spark,
    Trino,
    Polars,
}

impl Engine {
    /// The statement that makes a view of the rows in all files of a table, also of files that lack some columns.
    fn files(self, url: &str, table: &str) -> Option<String> {
        let url = url.trim_end_matches('/').replace('\'', "''");
        match self {
            Self::DuckDb => Some(format!(
                "CREATE OR REPLACE VIEW {table}_files AS SELECT * FROM read_parquet(\n  '{url}/{table}/*/*.parquet', \
                 union_by_name = true, hive_partitioning = true, filename = 'file')"
            )),
            Self::Spark => {
                // The connector of Hadoop has a scheme of its own.
                let url =
                    url.strip_prefix("s3://").map_or_else(|| url.clone(), |place| format!("s3a://{place}"));
                Some(format!(
                    "CREATE OR REPLACE TEMPORARY VIEW {table}_files USING parquet\n  OPTIONS (path '{url}/{table}', mergeSchema 'true')"
                ))
            }
            // A table of a Hive catalogue; Polars has no views.
            Self::Trino | Self::Polars => None,
        }
    }

    /// The rows of all files of samples, with the column `file`.
    const fn samples_with_file(self) -> &'static str {
        match self {
            Self::DuckDb | Self::Polars => "samples_files",
            Self::Spark => "(SELECT *, input_file_name() AS file FROM samples_files)",
            Self::Trino => "(SELECT *, \"$path\" AS file FROM samples_files)",
        }
    }
}

/// The views `all_runs`, with each run once; `runs`, without runs inside of others of the dataset; and `samples`. They read
/// the views, or for Trino the tables, `runs_files` and `samples_files`.
///
/// Samples have no time of storing. Of a run whose samples are in two files, those of its own file count, which is not older
/// than a merged file and comes first by name.
pub fn views(engine: Engine, url: &str) -> Vec<String> {
    let create =
        if engine == Engine::Spark { "CREATE OR REPLACE TEMPORARY VIEW" } else { "CREATE OR REPLACE VIEW" };
    let runs = [
        format!(
            "{create} all_runs AS\nSELECT * FROM (\n  SELECT *, row_number() OVER (PARTITION BY id ORDER BY stored_time DESC) AS copy\n  \
             FROM runs_files\n) WHERE copy = 1"
        ),
        format!(
            "{create} runs AS\nSELECT * FROM all_runs WHERE NOT EXISTS (SELECT 1 FROM runs_files WHERE runs_files.id = all_runs.parent)"
        ),
    ];
    let samples = format!(
        "{create} samples AS\nWITH files AS (SELECT * FROM {})\nSELECT * FROM files JOIN (\n  \
         SELECT run_id, min(file) AS file FROM files GROUP BY run_id\n) AS newest USING (run_id, file)",
        engine.samples_with_file()
    );
    let files = |table| engine.files(url, table);
    files("runs").into_iter().chain(runs).chain(files("samples")).chain([samples]).collect()
}

/// The query of `fleet summary` over the view `runs`. Ranks of one distributed program have the same `program`; a rank that
/// starts again, or another number of ranks, is another program.
pub fn summary(engine: Engine, by: &By) -> String {
    let key = match by {
        By::Job => "job".to_owned(),
        By::User => "\"user\"".to_owned(),
        By::Node => "node".to_owned(),
        // Ranks that start after midnight belong to the day of their program.
        By::Day => "min(CAST(date AS VARCHAR(10)))".to_owned(),
        By::Tag(tag) => {
            let tag = tag.replace('\'', "''");
            match engine {
                Engine::DuckDb => format!("json_extract_string(tags, '$.\"{tag}\"')"),
                Engine::Spark => format!("get_json_object(tags, \"$['{tag}']\")"),
                Engine::Trino => format!("json_extract_scalar(tags, '$[\"{tag}\"]')"),
                Engine::Polars => "tag".to_owned(),
            }
        }
    };
    let key = if engine == Engine::Spark { key.replace("\"user\"", "`user`") } else { key };
    let sums: Vec<String> = SUMS.iter().map(|column| format!("sum({column}) AS {column}")).collect();
    let sums = sums.join(", ");
    let flag = |column: &str| format!("max(CASE WHEN {column} THEN 1 ELSE 0 END) AS {column}");
    let group = if *by == By::Day { "2" } else { "1, 2" };
    format!(
        "WITH numbered AS (\n  SELECT *, coalesce(distributed || ' ' || CAST(coalesce(ranks, 0) AS VARCHAR(20)) || ' ' || CAST(row_number() OVER (\n    \
         PARTITION BY coalesce(distributed, id), ranks, rank ORDER BY start_time, id) AS VARCHAR(20)), id) AS program\n  \
         FROM runs\n), programs AS (\n  SELECT {key} AS key, program, count(*) AS recordings, count(distributed) AS ranks,\n    \
         {failed},\n    {oom},\n    {sums},\n    \
         count(cpu_seconds) AS timed_ranks, sum(cpu_seconds) AS cpu_s, max(cpu_seconds) AS highest_cpu_s\n  \
         FROM numbered GROUP BY {group}\n), rated AS (\n  \
         SELECT *, CASE WHEN ranks > 0 AND sum(timed_ranks) OVER ranks_of > 1 AND sum(cpu_s) OVER ranks_of > 0\n    \
         THEN max(highest_cpu_s) OVER ranks_of * sum(timed_ranks) OVER ranks_of / sum(cpu_s) OVER ranks_of\n    \
         END AS imbalance\n  FROM programs WINDOW ranks_of AS (PARTITION BY program)\n)\n\
         SELECT * FROM (\n  SELECT key, count(*) AS runs, sum(recordings) AS recordings, sum(is_failed) AS failed,\n  \
         sum(out_of_memory) AS out_of_memory, {sums},\n  avg(imbalance) AS imbalance\n  \
         FROM rated GROUP BY key\n)\n\
         ORDER BY coalesce(savings_usd, 0) DESC, coalesce(cpu_hours_wasted, 0) DESC, key",
        failed = flag("is_failed"),
        oom = flag("out_of_memory"),
    )
}
