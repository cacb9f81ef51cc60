//! Views, the summary and example queries in SQL, for engines that read Parquet.
//!
//! In:  the engine, and the address of the store. Out: named statements. The sums are those of `summary`.
//! Not here: the columns (`columns`). The example queries are in `questions.sql`, in the words of `DuckDB`.

use std::path::Path;

use super::columns;
use super::store::Connection;
use super::summary::{By, SUMS};
use super::table::Kind;

/// The queries of `docs/fleet-queries.md`, each with its question as a comment.
const QUESTIONS: &str = include_str!("questions.sql");

/// An engine that reads the dataset.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Engine {
    DuckDb,
    Spark,
    Trino,
    Polars,
}

/// What a statement is for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Part {
    /// How the engine reaches the store.
    Connection,
    /// Views of runs, or the tables below them.
    Runs,
    /// Views of samples, or the tables below them.
    Samples,
    /// The query of `fleet summary`.
    Summary,
    /// An example query.
    Question,
}

impl Part {
    pub const fn name(self) -> &'static str {
        match self {
            Self::Connection => "connection",
            Self::Runs => "runs",
            Self::Samples => "samples",
            Self::Summary => "summary",
            Self::Question => "question",
        }
    }
}

impl Engine {
    pub fn from_name(name: &str) -> Option<Self> {
        Some(match name {
            "duckdb" => Self::DuckDb,
            "spark" => Self::Spark,
            "trino" => Self::Trino,
            "polars" => Self::Polars,
            _ => return None,
        })
    }

    /// A string literal.
    fn string(self, text: &str) -> String {
        match self {
            Self::Spark => format!("'{}'", text.replace('\\', "\\\\").replace('\'', "\\'")),
            Self::DuckDb | Self::Trino | Self::Polars => format!("'{}'", text.replace('\'', "''")),
        }
    }

    /// The name of a column.
    fn column(self, name: &str) -> String {
        if self == Self::Spark { format!("`{name}`") } else { format!("\"{name}\"") }
    }

    /// A string literal of the files `rest` in a folder, whose name is no pattern.
    fn path(self, folder: &str, rest: &str) -> String {
        let escape = |special: &str, escaped: fn(char) -> String| -> String {
            folder.chars().map(|one| if special.contains(one) { escaped(one) } else { one.into() }).collect()
        };
        let folder = match self {
            Self::DuckDb | Self::Polars => escape("*?[", |one| format!("[{one}]")),
            Self::Spark => {
                let folder = escape("*?[]{}\\", |one| format!("\\{one}"));
                // The connector of Hadoop has a scheme of its own.
                folder.strip_prefix("s3://").map_or(folder.clone(), |place| format!("s3a://{place}"))
            }
            Self::Trino if Path::new(folder).is_absolute() => format!("file://{folder}"),
            Self::Trino => folder.to_owned(),
        };
        self.string(&format!("{}/{rest}", folder.trim_end_matches('/')))
    }

    /// The value of a tag, whose key may have any characters.
    fn tag(self, key: &str) -> String {
        match self {
            Self::DuckDb => {
                let pointer = format!("/{}", key.replace('~', "~0").replace('/', "~1"));
                format!("json_extract_string(tags, {})", self.string(&pointer))
            }
            Self::Spark => format!("from_json(tags, 'MAP<STRING, STRING>')[{}]", self.string(key)),
            Self::Trino => {
                format!("element_at(CAST(json_parse(tags) AS MAP(VARCHAR, VARCHAR)), {})", self.string(key))
            }
            // A column that the caller adds.
            Self::Polars => "tag".to_owned(),
        }
    }

    /// Unix seconds of a time.
    fn seconds(self, column: &str) -> String {
        match self {
            Self::DuckDb | Self::Polars => format!("epoch({column})"),
            Self::Spark => format!("unix_timestamp({column})"),
            Self::Trino => format!("to_unixtime({column})"),
        }
    }

    /// The start of a statement that makes a view.
    const fn create_view(self) -> &'static str {
        if matches!(self, Self::Spark) {
            "CREATE OR REPLACE TEMPORARY VIEW"
        } else {
            "CREATE OR REPLACE VIEW"
        }
    }

    /// The statements that make a view, or for Trino a table, of the rows in all files, also of files that lack some columns.
    fn files(self, url: &str, table: &str) -> Vec<String> {
        match self {
            Self::DuckDb => vec![format!(
                "CREATE OR REPLACE VIEW {table}_files AS SELECT * FROM read_parquet(\n  {}, \
                 union_by_name = true, hive_partitioning = true, filename = 'file')",
                self.path(url, &format!("{table}/*/*.parquet"))
            )],
            Self::Spark => vec![format!(
                "CREATE OR REPLACE TEMPORARY VIEW {table}_files USING parquet\n  OPTIONS (path {}, mergeSchema 'true')",
                self.path(url, table)
            )],
            Self::Trino => {
                let column = |name: &str, kind| format!("  {} {}", self.column(name), trino_type(kind));
                let mut columns: Vec<String> = if table == "runs" {
                    columns::run_columns().map(|(name, kind)| column(name, kind)).collect()
                } else {
                    columns::sample_columns().iter().map(|(name, kind)| column(name, *kind)).collect()
                };
                columns.push("  \"date\" DATE".to_owned());
                let create = format!(
                    "-- A table of the Hive connector in the schema `default`, which must be the schema of the session\n\
                     CREATE TABLE IF NOT EXISTS {table}_files (\n{}\n) WITH (\n  format = 'PARQUET',\n  external_location = {},\n  \
                     partitioned_by = ARRAY['date']\n)",
                    columns.join(",\n"),
                    self.path(url, table)
                );
                let sync = format!(
                    "-- Finds new days, so call it again later\nCALL system.sync_partition_metadata('default', '{table}_files', 'FULL')"
                );
                vec![create, sync]
            }
            // Polars has no views.
            Self::Polars => Vec::new(),
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

/// Times have milliseconds, as the connector has by default.
const fn trino_type(kind: Kind) -> &'static str {
    match kind {
        Kind::Text => "VARCHAR",
        Kind::Flag => "BOOLEAN",
        Kind::Integer => "BIGINT",
        Kind::Double => "DOUBLE",
        Kind::Time => "TIMESTAMP(3)",
    }
}

/// All statements for an engine, in their order.
pub fn statements(
    engine: Engine,
    url: &str,
    connection: Option<&Connection>,
    by: &By,
) -> Vec<(Part, String)> {
    let connection =
        connection.filter(|_| engine == Engine::DuckDb).map_or_else(Vec::new, |to| connect(url, to));
    let samples = [engine.files(url, "samples"), vec![samples_view(engine)]].concat();
    let runs = [engine.files(url, "runs"), runs_views(engine.create_view()).to_vec()].concat();
    let parts = [
        (Part::Connection, connection),
        (Part::Runs, runs),
        (Part::Samples, samples),
        (Part::Summary, vec![format!("-- The figures of `fleet summary`\n{}", summary(engine, by))]),
        (Part::Question, questions(engine)),
    ];
    parts.into_iter().flat_map(|(part, texts)| texts.into_iter().map(move |text| (part, text))).collect()
}

/// Statements with which `DuckDB` finds credentials by itself, for this store only.
fn connect(url: &str, to: &Connection) -> Vec<String> {
    let string = |text: &str| Engine::DuckDb.string(text);
    let mut settings = vec!["TYPE s3".to_owned(), "PROVIDER credential_chain".to_owned()];
    settings.push(format!("SCOPE {}", string(url)));
    settings.extend(to.region.as_ref().map(|region| format!("REGION {}", string(region))));
    if let Some(endpoint) = &to.endpoint {
        let (scheme, place) = endpoint.split_once("://").unwrap_or(("https", endpoint));
        // What is before an `@` may be a password.
        let place = place.rsplit('@').next().unwrap_or_default().trim_end_matches('/');
        settings.push(format!("ENDPOINT {}", string(place)));
        settings.extend((scheme == "http").then(|| "USE_SSL false".to_owned()));
    }
    settings.push(format!("URL_STYLE '{}'", if to.is_path_style { "path" } else { "vhost" }));
    let install =
        ["httpfs", "aws"].map(|extension| [format!("INSTALL {extension}"), format!("LOAD {extension}")]);
    let secret = format!("CREATE OR REPLACE SECRET resource_tracker (\n  {}\n)", settings.join(",\n  "));
    install.into_iter().flatten().chain([secret]).collect()
}

/// The views `all_runs`, with each run once, and `runs`, without runs inside of others of the dataset. They read the view, or for
/// Trino the table, `runs_files`.
fn runs_views(create: &str) -> [String; 2] {
    [
        format!(
            "{create} all_runs AS\nSELECT * FROM (\n  SELECT *, row_number() OVER (PARTITION BY id ORDER BY stored_time DESC) AS copy\n  \
             FROM runs_files\n) WHERE copy = 1"
        ),
        format!(
            "{create} runs AS\nSELECT * FROM all_runs WHERE NOT EXISTS (SELECT 1 FROM runs_files WHERE runs_files.id = all_runs.parent)"
        ),
    ]
}

/// The view `samples`. Samples have no time of storing. Of a run whose samples are in two files, those of its own file count,
/// which is not older than a merged file and comes first by name.
fn samples_view(engine: Engine) -> String {
    format!(
        "{} samples AS\nWITH files AS (SELECT * FROM {})\nSELECT * FROM files JOIN (\n  \
         SELECT run_id, min(file) AS file FROM files GROUP BY run_id\n) AS newest USING (run_id, file)",
        engine.create_view(),
        engine.samples_with_file()
    )
}

/// The query of `fleet summary` over the view `runs`.
fn summary(engine: Engine, by: &By) -> String {
    let key = match by {
        By::Job => "job".to_owned(),
        By::User => engine.column("user"),
        By::Node => "node".to_owned(),
        // Ranks that start after midnight belong to the day of their program.
        By::Day => "min(CAST(date AS VARCHAR(10)))".to_owned(),
        By::Tag(tag) => engine.tag(tag),
    };
    let group = if *by == By::Day { "2" } else { "1, 2" };
    let sums = SUMS.map(|column| format!("sum({column}) AS {column}")).join(", ");
    // Ranks of one distributed program have the same `program`; a rank that starts again, or another number of ranks, is
    // another program.
    let numbered = "\
  SELECT *, coalesce(distributed || ' ' || CAST(coalesce(ranks, 0) AS VARCHAR(20)) || ' ' || CAST(row_number() OVER (
    PARTITION BY coalesce(distributed, id), ranks, rank ORDER BY start_time, id) AS VARCHAR(20)), id) AS program
  FROM runs";
    let programs = format!(
        "  SELECT {key} AS key, program, count(*) AS recordings, count(distributed) AS ranks,
    max(CASE WHEN is_failed THEN 1 ELSE 0 END) AS is_failed,
    max(CASE WHEN out_of_memory THEN 1 ELSE 0 END) AS out_of_memory,
    {sums},
    count(cpu_seconds) AS timed_ranks, sum(cpu_seconds) AS cpu_s, max(cpu_seconds) AS highest_cpu_s
  FROM numbered GROUP BY {group}"
    );
    let rated = "\
  SELECT *, CASE WHEN ranks > 0 AND sum(timed_ranks) OVER ranks_of > 1 AND sum(cpu_s) OVER ranks_of > 0
    THEN max(highest_cpu_s) OVER ranks_of * sum(timed_ranks) OVER ranks_of / sum(cpu_s) OVER ranks_of
    END AS imbalance
  FROM programs WINDOW ranks_of AS (PARTITION BY program)";
    let summed = format!(
        "  SELECT key, count(*) AS runs, sum(recordings) AS recordings, sum(is_failed) AS failed,
    sum(out_of_memory) AS out_of_memory, {sums},
    avg(imbalance) AS imbalance
  FROM rated GROUP BY key"
    );
    format!(
        "WITH numbered AS (\n{numbered}\n), programs AS (\n{programs}\n), rated AS (\n{rated}\n), summed AS (\n{summed}\n)\n\
         SELECT * FROM summed\n\
         ORDER BY coalesce(savings_usd, 0) DESC, coalesce(cpu_hours_wasted, 0) DESC, key NULLS FIRST"
    )
}

/// The queries of `questions.sql` in the words of an engine.
fn questions(engine: Engine) -> Vec<String> {
    let words = |engine: Engine| [engine.column("user"), engine.tag("team"), engine.seconds("start_time")];
    let in_words = |text: &str| {
        let pairs = words(Engine::DuckDb).into_iter().zip(words(engine));
        pairs.fold(text.to_owned(), |text, (from, to)| text.replace(&from, &to))
    };
    QUESTIONS.split(';').map(str::trim).filter(|text| !text.is_empty()).map(in_words).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn text(engine: Engine, url: &str, connection: Option<&Connection>) -> String {
        let statements = statements(engine, url, connection, &By::Job);
        statements.into_iter().map(|(_, text)| text + ";\n").collect()
    }

    #[test]
    fn duckdb_reaches_a_bucket_without_credentials_in_the_text() {
        let bucket = Connection {
            region: Some("eu-west-1".to_owned()),
            endpoint: Some("http://key:secret@minio:9000/".to_owned()),
            is_path_style: true,
        };
        let found = text(Engine::DuckDb, "s3://bucket/runs", Some(&bucket));
        let secret = "CREATE OR REPLACE SECRET resource_tracker (\n  TYPE s3,\n  PROVIDER credential_chain,\n  \
                      SCOPE 's3://bucket/runs',\n  REGION 'eu-west-1',\n  ENDPOINT 'minio:9000',\n  USE_SSL false,\n  URL_STYLE 'path'\n);";
        assert!(found.starts_with("INSTALL httpfs;\nLOAD httpfs;\nINSTALL aws;\nLOAD aws;\n"), "{found}");
        assert!(found.contains(secret) && !found.contains("key:"), "{found}");
        let amazon = Connection { region: None, endpoint: None, is_path_style: false };
        let found = text(Engine::DuckDb, "s3://bucket/runs", Some(&amazon));
        assert!(!found.contains("ENDPOINT") && found.contains("URL_STYLE 'vhost'"), "{found}");
        assert!(!text(Engine::Spark, "s3://bucket/runs", Some(&amazon)).contains("SECRET"));
        assert!(!text(Engine::DuckDb, "/shared/runs", None).contains("INSTALL"));
    }

    #[test]
    fn trino_gets_tables_of_all_columns() {
        let found = text(Engine::Trino, "s3://bucket/it's", None);
        for part in [
            "CREATE TABLE IF NOT EXISTS runs_files (\n  \"id\" VARCHAR,\n  \"stored_time\" TIMESTAMP(3),\n",
            "  \"is_failed\" BOOLEAN,\n",
            "  \"date\" DATE\n) WITH (\n  format = 'PARQUET',\n  external_location = 's3://bucket/it''s/runs',\n  partitioned_by = ARRAY['date']\n)",
            "CREATE TABLE IF NOT EXISTS samples_files (\n  \"run_id\" VARCHAR,\n  \"timestamp\" TIMESTAMP(3),\n",
            "  \"process_memory\" BIGINT,\n",
            "CALL system.sync_partition_metadata('default', 'samples_files', 'FULL')",
        ] {
            assert!(found.contains(part), "{part}\n{found}");
        }
        assert!(text(Engine::Trino, "/shared/runs", None).contains("'file:///shared/runs/samples'"));
    }

    #[test]
    fn strings_paths_and_keys_stay_what_they_are() {
        let key = "x\") '\\/~";
        assert_eq!(Engine::DuckDb.tag(key), "json_extract_string(tags, '/x\") ''\\~1~0')");
        assert_eq!(Engine::Spark.tag(key), "from_json(tags, 'MAP<STRING, STRING>')['x\") \\'\\\\/~']");
        let folder = "/a [b]*?'";
        assert_eq!(Engine::DuckDb.path(folder, "runs/*"), "'/a [[]b][*][?]''/runs/*'");
        assert_eq!(Engine::Spark.path(folder, "runs"), r"'/a \\[b\\]\\*\\?\'/runs'");
        assert_eq!(Engine::Spark.path("s3://b/p/", "runs"), "'s3a://b/p/runs'");
    }

    #[test]
    fn questions_are_in_the_words_of_the_engine() {
        let found = questions(Engine::DuckDb);
        assert!(found.len() > 10 && found.iter().all(|query| query.starts_with("-- ")), "{}", found.len());
        let spark = questions(Engine::Spark).join(";");
        for word in ["\"", "epoch(", "json_extract"] {
            assert!(found.join(";").contains(word) && !spark.contains(word), "{word}");
        }
    }
}
