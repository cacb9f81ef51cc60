//! The history as a table, for Python and R.
//!
//! In:  the runs, a job name, a tag. Out: one JSON object per run, with the same keys in the same order.

use serde_json::{Map, Value, json};

use super::{Entry, History, HistoryError};

impl History {
    /// Names of the columns of [`Self::table`], for a history without runs.
    pub fn columns() -> Vec<String> {
        row(&Entry::default()).keys().cloned().collect()
    }

    /// All runs, newest first, or those of one job or with one tag (`KEY` or `KEY=VALUE`). Runs of killed trackers are
    /// recovered first.
    pub fn table(
        &self,
        job: Option<&str>,
        tag: Option<&str>,
    ) -> Result<Vec<Map<String, Value>>, HistoryError> {
        // A journal that cannot be recovered stays and is tried again later.
        let _ = self.recover();
        let _ = self.recover_temporary();
        let has_tag = |entry: &Entry| match tag.map(|tag| tag.split_once('=').ok_or(tag)) {
            None => true,
            Some(Ok((key, value))) => entry.tags.get(key).is_some_and(|found| found == value),
            Some(Err(key)) => entry.tags.contains_key(key),
        };
        let is_wanted = |entry: &&Entry| (job.is_none() || entry.job.as_deref() == job) && has_tag(entry);
        Ok(self.list()?.entries.iter().filter(is_wanted).map(row).collect())
    }
}

/// The object of a run without its nested parts: cells are numbers, text or booleans, as data frames need them.
fn row(entry: &Entry) -> Map<String, Value> {
    let tags: Vec<String> = entry.tags.iter().map(|(key, value)| format!("{key}={value}")).collect();
    let mut row = entry.run_object();
    row.insert("tags".to_owned(), json!(tags.join(",")));
    row.insert("command".to_owned(), json!(entry.command.as_ref().map(|words| words.join(" "))));
    row.retain(|name, _| !["oom_kills", "tracker", "notes"].contains(&name.as_str()));
    row
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::store::recording::Status;
    use crate::store::stats::Stats;
    use std::io::Write as _;

    #[test]
    fn table_has_the_runs_of_a_job_or_tag_newest_first() {
        let folder = tempfile::tempdir().unwrap();
        let history = History::at(folder.path());
        let mut stats = Stats::default();
        stats.set("process_cpu_usage", "mean", Some(1.5));
        stats.set("process_memory", "max", Some(2048.0));
        for (number, (id, job, fold)) in
            [("a", "train", "1"), ("b", "train", "2"), ("c", "test", "2")].iter().enumerate()
        {
            let entry = Entry {
                id: (*id).to_owned(),
                job: Some((*job).to_owned()),
                tags: [("fold".to_owned(), (*fold).to_owned()), ("x".to_owned(), "y".to_owned())].into(),
                command: Some(vec!["python".to_owned(), "train.py".to_owned()]),
                status: Some(Status::Finished),
                start_time: u8::try_from(number).ok().map(f64::from),
                stats: Some(stats.clone()),
                ..Entry::default()
            };
            history.store(&entry, |file| file.write_all(b"rows")).unwrap();
        }
        let ids = |job, tag| -> String {
            history
                .table(job, tag)
                .unwrap()
                .iter()
                .map(|row| row["id"].as_str().unwrap().to_owned())
                .collect()
        };
        assert_eq!(ids(None, None), "cba");
        assert_eq!(ids(Some("train"), None), "ba");
        assert_eq!((ids(None, Some("fold=2")), ids(None, Some("fold"))), ("cb".to_owned(), "cba".to_owned()));
        assert_eq!(
            (ids(Some("test"), Some("fold=1")), ids(None, Some("fo"))),
            (String::new(), String::new())
        );
        assert!(history.table(None, None).unwrap()[0].keys().eq(&History::columns()));
        let row = Value::Object(history.table(Some("test"), None).unwrap().remove(0));
        assert_eq!((&row["cpu_mean_cores"], &row["memory_peak_bytes"]), (&json!(1.5), &json!(2_097_152.0)));
        assert_eq!((&row["tags"], &row["command"]), (&json!("fold=2,x=y"), &json!("python train.py")));
        assert_eq!((&row["status"], &row["exit_code"]), (&json!("finished"), &Value::Null));
    }
}
