// Numbers in text files: strict, fast, and the same in every locale.
#pragma once
#include <string_view>

namespace blackout::ngram {

// An optional sign, digits with at most one point, an optional exponent; or "-inf", which is
// -99. False when the text is anything else.
bool parse_number(std::string_view text, double &value);

}  // namespace blackout::ngram
