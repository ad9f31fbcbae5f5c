#include "tasks/token_source.h"

#include <chrono>

#include "core/base/error.h"
#include "models/stage.h"

namespace melete {

namespace {

// make(wave [rows, samples]) -> tokens [rows, n, ...], for rows of unequal length
template <class Make>
at::Tensor by_length(const at::Tensor& wave, const at::Tensor& lengths, Make make) {
  const int64_t samples = wave.size(1);
  if (!lengths.defined() || lengths.eq(samples).all().item<bool>()) return make(wave);
  std::vector<at::Tensor> rows;
  for (int64_t row = 0; row < wave.size(0); ++row)
    rows.push_back(make(wave.narrow(0, row, 1).narrow(1, 0, lengths[row].item<int64_t>()))[0]);
  return stack_padded(rows);
}

}  // namespace

at::Tensor stack_padded(const std::vector<at::Tensor>& rows) {
  int64_t longest = 0;
  for (const at::Tensor& row : rows) longest = std::max(longest, row.size(0));
  auto shape = rows.front().sizes().vec();
  shape.front() = longest;
  shape.insert(shape.begin(), static_cast<int64_t>(rows.size()));
  at::Tensor result = at::full(shape, kPadding, at::kLong);
  for (size_t i = 0; i < rows.size(); ++i)
    result[static_cast<int64_t>(i)].narrow(0, 0, rows[i].size(0)).copy_(rows[i]);
  return result;
}

std::vector<int64_t> Tokenizers::rates_hz() const {
  std::vector<int64_t> rates;
  if (semantic) rates.push_back(semantic->rate_hz());
  if (codec) rates.push_back(codec->rate_hz());
  return rates;
}

void tokenize(Batch& batch, const Tokenizers& tokenizers) {
  const at::NoGradGuard no_grad;
  size_t rate = 0;
  const auto lengths = [&](size_t i) { return i < batch.lengths.size() ? batch.lengths[i] : at::Tensor(); };
  if (tokenizers.semantic) {
    batch.semantic = by_length(batch.waves.at(rate), lengths(rate),
                               [&](const at::Tensor& wave) { return tokenizers.semantic->tokenize(wave); });
    ++rate;
  }
  if (tokenizers.codec)
    batch.acoustic = by_length(batch.waves.at(rate), lengths(rate),
                               [&](const at::Tensor& wave) { return tokenizers.codec->encode(wave); });
  if (tokenizers.text) batch.text_features = tokenizers.text->encode(batch.texts).embeddings;
}

TokenSource::TokenSource(BatchSource& audio, Tokenizers tokenizers)
    : audio_(audio), tokenizers_(std::move(tokenizers)), thread_([this] { run(); }) {}

TokenSource::~TokenSource() {
  {
    const std::lock_guard lock(mutex_);
    stop_ = true;
  }
  changed_.notify_all();
  thread_.join();
}

void TokenSource::run() {
  std::unique_lock lock(mutex_);
  while (true) {
    changed_.wait(lock, [&] { return stop_ || wanted_.has_value(); });
    if (stop_) return;
    const int64_t number = *wanted_;
    wanted_.reset();
    busy_ = true;
    lock.unlock();
    Batch batch;
    std::exception_ptr error;
    try {
      batch = audio_.batch(number);
      tokenize(batch, tokenizers_);
    } catch (...) {
      error = std::current_exception();
    }
    lock.lock();
    batch_ = std::move(batch);
    error_ = error;
    made_ = number;
    busy_ = false;
    changed_.notify_all();
  }
}

// Called before the first batch is asked for, or between two: what was made ahead belongs to the old stream.
void TokenSource::start_from(int64_t item) {
  std::unique_lock lock(mutex_);
  changed_.wait(lock, [&] { return !wanted_.has_value() && !busy_; });
  made_.reset();
  audio_.start_from(item);
}

Batch TokenSource::batch(int64_t number) {
  const auto begin = std::chrono::steady_clock::now();
  std::unique_lock lock(mutex_);
  while (made_ != number) {
    made_.reset();
    wanted_ = number;
    changed_.notify_all();
    changed_.wait(lock, [&] { return made_.has_value(); });
  }
  made_.reset();
  wanted_ = number + 1;  // the next one, while this one is trained on
  changed_.notify_all();
  waited_seconds_ += std::chrono::duration<double>(std::chrono::steady_clock::now() - begin).count();
  if (error_) std::rethrow_exception(error_);
  return std::move(batch_);
}

}  // namespace melete
