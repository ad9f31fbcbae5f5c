// From a file to a frozen model behind its interface; the file alone is enough. A file of another kind is
// refused by its name, with what it is.
#pragma once

#include <memory>
#include <string>

#include "models/codec.h"
#include "models/semantic_tokenizer.h"
#include "models/text_encoder.h"

namespace melete {

// What `melete train kmeans` and `melete import hubert | vq-wav2vec` write.
std::unique_ptr<SemanticTokenizer> load_semantic_tokenizer(const std::string& path);

// A SoundStream run folder or checkpoint, or what `melete import encodec` writes.
std::unique_ptr<Codec> load_any_codec(const std::string& run_or_checkpoint);

// What `melete import t5` writes.
std::unique_ptr<TextEncoder> load_text_encoder(const std::string& path);

}  // namespace melete
