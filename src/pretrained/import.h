// Published weights of frozen models, made ready to be stored as a file of ours. Library side of `melete
// import`.
#pragma once

#include <memory>
#include <nlohmann/json.hpp>
#include <string>

#include "pretrained/encodec.h"
#include "pretrained/hubert.h"
#include "pretrained/kmeans_tokenizer.h"
#include "pretrained/t5.h"
#include "pretrained/vocos_features.h"
#include "pretrained/vq_wav2vec.h"
#include "roles/semantic_tokenizer.h"
#include "run/frozen_file.h"

namespace melete {

// The models themselves, from files as they are downloaded.
Hubert import_hubert(const std::string& path, int64_t layers = 0);  // the lowest so many; 0: all
Encodec import_encodec(const std::string& path, double kbit_per_second = 6);
Vocos import_vocos(const std::string& path);
std::unique_ptr<T5TextEncoder> import_t5(const std::string& path, const std::string& sentencepiece_path,
                                         int64_t max_tokens = 256);
// sample_rate_hz: of the sound that it is given, 0 for the 16 kHz that it was trained with. At another rate
// it hears everything higher or lower, as FairseqVQWav2Vec with that target_sample_hz does.
std::unique_ptr<VqWav2VecTokenizer> import_vq_wav2vec(const std::string& path, int64_t sample_rate_hz = 0);

// Each as what is stored, and back. `where` goes into messages.
FrozenModel frozen(const Hubert& model);
FrozenModel frozen(const Encodec& model);
FrozenModel frozen(const T5TextEncoder& encoder);
// A vocoder as a run of vocos leaves it, which is how systems/vocos opens it.
FrozenModel frozen(const Vocos& vocoder, const MelFramesConfig& mel);
// bandwidth: which of the vocoder's conditions
FrozenModel frozen(const Encodec& codec, const Vocos& vocoder, int64_t bandwidth);
FrozenModel frozen(const KmeansTokenizer& tokenizer);
FrozenModel frozen(const VqWav2VecTokenizer& tokenizer);
Hubert hubert_of(const FrozenModel& stored, const std::string& where);
Encodec encodec_of(const FrozenModel& stored, const std::string& where);
std::unique_ptr<T5TextEncoder> text_encoder_of(const FrozenModel& stored, const std::string& where);
std::unique_ptr<SemanticTokenizer> semantic_tokenizer_of(const FrozenModel& stored, const std::string& where);

}  // namespace melete
