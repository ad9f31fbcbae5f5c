// Text that went through too many programs, made plain again: what ftfy does for CLIP's tokenizer.
#pragma once

#include <string>
#include <string_view>

namespace melete {

// Line by line: entities, UTF-8 that was read as Windows-1252 ("schÃ¶n"), ligatures, half and full width,
// curly quotes, line breaks, terminal colours, control characters, and composed letters; again until nothing
// changes. Entities are left alone from the first line on that has a "<", which is HTML.
std::u32string repair_text(std::u32string_view text);

// UTF-8 that was read as Windows-1252 or Latin-1, wherever a stretch of it looks so: "â€™" becomes "’".
// Capitals that happen to be followed by punctuation ("CAFÉ…") are left alone.
std::u32string repair_encoding(std::u32string_view text);

}  // namespace melete
