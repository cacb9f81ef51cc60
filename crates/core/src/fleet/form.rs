//! The types of columns in Parquet files.
//!
//! In:  the type of a column of a file. Out: how a table has it, and the type that is written for it.

use parquet::basic::{ConvertedType, LogicalType, Repetition, TimeUnit, Type as Physical};
use parquet::errors::ParquetError;
use parquet::schema::types::Type;

/// Type of a column.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    Text,
    Flag,
    Integer,
    Double,
    /// UTC, in microseconds.
    Time,
}

/// How the cells of a column are read.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Form {
    pub kind: Kind,
    /// Whether [`field`] writes the same type.
    pub is_ours: bool,
    /// Times have this many units in a microsecond, or a unit has so many microseconds.
    units: (i64, i64),
}

impl Form {
    /// Makes times microseconds; those out of range are missing.
    pub fn convert<'t>(self, times: impl Iterator<Item = &'t mut Option<i64>>) {
        let (in_microsecond, microseconds) = self.units;
        if self.units != (1, 1) {
            for time in times {
                *time = time.and_then(|time| time.div_euclid(in_microsecond).checked_mul(microseconds));
            }
        }
    }
}

/// `None` for a type that a table cannot hold. Files without logical types have the older converted types.
pub fn form_of(found: &Type) -> Option<Form> {
    let Type::PrimitiveType { basic_info, .. } = found else { return None };
    let (logical, converted) = (basic_info.logical_type_ref(), basic_info.converted_type());
    let form = |kind, is_ours| Some(Form { kind, is_ours, units: (1, 1) });
    let time = |is_ours, units| Some(Form { kind: Kind::Time, is_ours, units });
    match (found.get_physical_type(), logical, converted) {
        (Physical::BYTE_ARRAY, Some(LogicalType::String), _)
        | (Physical::BYTE_ARRAY, None, ConvertedType::UTF8) => form(Kind::Text, true),
        (Physical::BYTE_ARRAY, ..) => form(Kind::Text, false),
        (Physical::BOOLEAN, ..) => form(Kind::Flag, true),
        (Physical::INT64, Some(LogicalType::Timestamp(stamp)), _) => match stamp.unit {
            TimeUnit::MILLIS => time(false, (1, 1000)),
            TimeUnit::MICROS => time(stamp.is_adjusted_to_u_t_c, (1, 1)),
            TimeUnit::NANOS => time(false, (1000, 1)),
        },
        (Physical::INT64, None, ConvertedType::TIMESTAMP_MILLIS) => time(false, (1, 1000)),
        (Physical::INT64, None, ConvertedType::TIMESTAMP_MICROS) => time(true, (1, 1)),
        (Physical::INT64, Some(LogicalType::Integer(integer)), _) if integer.is_signed => {
            form(Kind::Integer, true)
        }
        (Physical::INT64, None, ConvertedType::NONE | ConvertedType::INT_64) => form(Kind::Integer, true),
        (Physical::DOUBLE, ..) => form(Kind::Double, true),
        _ => None,
    }
}

/// The type of a column that is written.
pub fn field(name: &str, kind: Kind) -> Result<Type, ParquetError> {
    let (physical, logical) = match kind {
        Kind::Text => (Physical::BYTE_ARRAY, Some(LogicalType::String)),
        Kind::Flag => (Physical::BOOLEAN, None),
        Kind::Integer => (Physical::INT64, None),
        Kind::Double => (Physical::DOUBLE, None),
        Kind::Time => (Physical::INT64, Some(LogicalType::timestamp(true, TimeUnit::MICROS))),
    };
    Type::primitive_type_builder(name, physical)
        .with_logical_type(logical)
        .with_repetition(Repetition::OPTIONAL)
        .build()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn column(physical: Physical, logical: Option<LogicalType>, converted: ConvertedType) -> Type {
        let column = Type::primitive_type_builder("column", physical).with_logical_type(logical);
        column.with_converted_type(converted).build().unwrap()
    }

    #[test]
    fn written_types_are_read_and_others_are_not_taken_for_them() {
        for kind in [Kind::Text, Kind::Flag, Kind::Integer, Kind::Double, Kind::Time] {
            let form = form_of(&field("column", kind).unwrap()).unwrap();
            assert_eq!((form.kind, form.is_ours, form.units), (kind, true, (1, 1)));
        }
        let none = ConvertedType::NONE;
        let found = |physical, logical, converted| form_of(&column(physical, logical, converted));
        assert_eq!(found(Physical::INT32, None, none), None);
        assert_eq!(found(Physical::FLOAT, None, none), None);
        assert_eq!(found(Physical::INT64, None, ConvertedType::UINT_64), None);
        assert_eq!(found(Physical::INT64, Some(LogicalType::integer(64, false)), none), None);
        let binary = found(Physical::BYTE_ARRAY, None, none).unwrap();
        assert_eq!((binary.kind, binary.is_ours), (Kind::Text, false));
        for (form, expected) in [
            (found(Physical::INT64, Some(LogicalType::timestamp(true, TimeUnit::MILLIS)), none), 1_500_000),
            (found(Physical::INT64, None, ConvertedType::TIMESTAMP_MILLIS), 1_500_000),
            (found(Physical::INT64, Some(LogicalType::timestamp(true, TimeUnit::NANOS)), none), 1),
            (found(Physical::INT64, Some(LogicalType::timestamp(false, TimeUnit::MICROS)), none), 1500),
        ] {
            let (form, mut time) = (form.unwrap(), Some(1500));
            form.convert([&mut time].into_iter());
            assert_eq!((form.kind, form.is_ours, time), (Kind::Time, false, Some(expected)));
        }
    }
}
