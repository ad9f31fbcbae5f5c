// Sound into tokens on the way to a training loop: frozen tokenizers run under no-grad on a thread of their
// own, one batch ahead.
#pragma once

#include <condition_variable>
#include <exception>
#include <memory>
#include <mutex>
#include <optional>
#include <thread>

#include "data/loader.h"
#include "models/codec.h"
#include "models/semantic_tokenizer.h"
#include "models/text_encoder.h"

namespace melete {

// The frozen models that a stage needs; those it does not are null.
struct Tokenizers {
  std::shared_ptr<const SemanticTokenizer> semantic;
  std::shared_ptr<const Codec> codec;
  std::shared_ptr<const TextEncoder> text;

  // Rates that the waves of a batch must have, in this order: semantic, codec.
  std::vector<int64_t> rates_hz() const;
};

// Rows of unequal length, [n, ...] each -> int64 [rows, longest, ...], padded with -1.
at::Tensor stack_padded(const std::vector<at::Tensor>& rows);

// Fills the batch's token fields from its waves and texts. Items shorter than the batch are tokenized by
// themselves, so that what stands beside them changes nothing, and padded with -1.
void tokenize(Batch& batch, const Tokenizers& tokenizers);

class TokenSource : public BatchSource {
 public:
  TokenSource(BatchSource& audio, Tokenizers tokenizers);  // `audio` outlives it
  ~TokenSource() override;

  Batch batch(int64_t number) override;
  double wait_seconds() const override { return waited_seconds_; }
  int64_t items_per_batch() const override { return audio_.items_per_batch(); }
  double weight() const override { return audio_.weight(); }
  void start_from(int64_t item) override;

 private:
  void run();

  BatchSource& audio_;
  Tokenizers tokenizers_;
  std::mutex mutex_;
  std::condition_variable changed_;
  std::optional<int64_t> wanted_;  // what the thread should make next
  std::optional<int64_t> made_;    // what it has made
  Batch batch_;
  std::exception_ptr error_;
  bool busy_ = false, stop_ = false;
  double waited_seconds_ = 0;
  std::thread thread_;
};

}  // namespace melete
