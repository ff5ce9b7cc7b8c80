//! Serde's access to the contents of a value, in order.

use serde::de::value::{BorrowedStrDeserializer, Error, U64Deserializer};
use serde::de::{
    DeserializeSeed, Deserializer, EnumAccess, Error as _, IntoDeserializer, MapAccess, SeqAccess,
    VariantAccess, Visitor,
};

use super::reader::ValueReader;

/// The values of a list.
pub struct Items<'a, 't, 'de> {
    reader: &'a mut ValueReader<'t, 'de>,
    left: usize,
}

impl<'a, 't, 'de> Items<'a, 't, 'de> {
    pub const fn new(reader: &'a mut ValueReader<'t, 'de>, length: usize) -> Self {
        Self {
            reader,
            left: length,
        }
    }

    /// Fails unless all values were taken.
    pub fn end(self) -> Result<(), Error> {
        match self.left {
            0 => Ok(()),
            left => Err(Error::custom(format!("a list is {left} too long"))),
        }
    }
}

impl<'de> SeqAccess<'de> for Items<'_, '_, 'de> {
    type Error = Error;

    fn next_element_seed<S: DeserializeSeed<'de>>(
        &mut self,
        seed: S,
    ) -> Result<Option<S::Value>, Error> {
        if self.left == 0 {
            return Ok(None);
        }
        self.left -= 1;
        seed.deserialize(&mut *self.reader).map(Some)
    }

    fn size_hint(&self) -> Option<usize> {
        Some(self.left)
    }
}

/// The fields of a record.
pub struct Fields<'a, 't, 'de> {
    reader: &'a mut ValueReader<'t, 'de>,
    names: &'t [&'de str],
    places: Option<&'t [Option<u64>]>,
    next: usize,
}

impl<'a, 't, 'de> Fields<'a, 't, 'de> {
    pub const fn new(
        reader: &'a mut ValueReader<'t, 'de>,
        names: &'t [&'de str],
        places: Option<&'t [Option<u64>]>,
    ) -> Self {
        Self {
            reader,
            names,
            places,
            next: 0,
        }
    }

    /// Fails unless all fields were taken.
    pub fn end(self) -> Result<(), Error> {
        if self.next == self.names.len() {
            Ok(())
        } else {
            Err(Error::custom("a record has fields that are not read"))
        }
    }
}

impl<'de> MapAccess<'de> for Fields<'_, '_, 'de> {
    type Error = Error;

    fn next_key_seed<S: DeserializeSeed<'de>>(
        &mut self,
        seed: S,
    ) -> Result<Option<S::Value>, Error> {
        let Some(name) = self.names.get(self.next) else {
            return Ok(None);
        };
        let places = self.places.and_then(|places| places.get(self.next));
        let key = match places.copied().flatten() {
            // Derived structs also identify their fields by number.
            Some(place) => {
                let place: U64Deserializer<Error> = place.into_deserializer();
                seed.deserialize(place)
            }
            None => seed.deserialize(BorrowedStrDeserializer::new(name)),
        };
        self.next += 1;
        key.map(Some)
    }

    fn next_value_seed<S: DeserializeSeed<'de>>(&mut self, seed: S) -> Result<S::Value, Error> {
        seed.deserialize(&mut *self.reader)
    }

    fn size_hint(&self) -> Option<usize> {
        Some(self.names.len() - self.next)
    }
}

/// An enum variant with values.
pub struct Variant<'a, 't, 'de> {
    pub reader: &'a mut ValueReader<'t, 'de>,
    pub name: &'de str,
}

impl<'de> EnumAccess<'de> for Variant<'_, '_, 'de> {
    type Error = Error;
    type Variant = Self;

    fn variant_seed<S: DeserializeSeed<'de>>(self, seed: S) -> Result<(S::Value, Self), Error> {
        let variant = seed.deserialize(BorrowedStrDeserializer::new(self.name))?;
        Ok((variant, self))
    }
}

impl<'de> VariantAccess<'de> for Variant<'_, '_, 'de> {
    type Error = Error;

    fn unit_variant(self) -> Result<(), Error> {
        Err(Error::custom(format!("{} has no values", self.name)))
    }

    fn newtype_variant_seed<S: DeserializeSeed<'de>>(self, seed: S) -> Result<S::Value, Error> {
        seed.deserialize(self.reader)
    }

    fn tuple_variant<V: Visitor<'de>>(self, _: usize, visitor: V) -> Result<V::Value, Error> {
        self.reader.deserialize_any(visitor)
    }

    fn struct_variant<V: Visitor<'de>>(
        self,
        fields: &'static [&'static str],
        visitor: V,
    ) -> Result<V::Value, Error> {
        self.reader.deserialize_struct("", fields, visitor)
    }
}
