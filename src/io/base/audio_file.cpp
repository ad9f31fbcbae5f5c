#include "io/base/audio_file.h"

#include <sndfile.h>

#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <cmath>
#include <cstring>
#include <filesystem>
#include <mutex>
#include <shared_mutex>
#include <string_view>
#include <utility>

#include "core/base/error.h"
#include "io/base/atomic_file.h"
#include "io/base/ffmpeg.h"

namespace melete {

namespace {

constexpr int kMostChannels = 64;
constexpr int kMostRateHz = 1'000'000;
constexpr int64_t kChunkFrames = 16384;
// The densest real file is digital silence in FLAC: 65535 frames in some ten bytes. A header that claims more
// than this per byte is lying.
constexpr int64_t kMostFramesPerByte = 8192;
// Of a file that has to be decoded to know its length: 12 hours at 48 kHz; silence without an end takes few
// bytes.
constexpr int64_t kMostCountedFrames = int64_t{1} << 31;

std::string extension_of(const std::string& path) {
  std::string extension = std::filesystem::path(path).extension().string();
  std::transform(extension.begin(), extension.end(), extension.begin(),
                 [](unsigned char c) { return static_cast<char>(std::tolower(c)); });
  return extension;
}

template <size_t N>
bool contains(const std::array<std::string_view, N>& list, const std::string& word) {
  return std::find(list.begin(), list.end(), word) != list.end();
}

constexpr std::array<std::string_view, 17> kReadable = {".wav",  ".wave", ".rf64", ".w64",  ".flac", ".mp3",
                                                        ".mp2",  ".ogg",  ".oga",  ".opus", ".aiff", ".aif",
                                                        ".aifc", ".au",   ".snd",  ".caf",  ".voc"};
constexpr std::array<std::string_view, 33> kFfmpegOnly = {
    ".m4a", ".m4b", ".m4r", ".aac",  ".mp4", ".m4v", ".mov", ".webm", ".weba", ".mkv", ".mka",
    ".wma", ".wmv", ".asf", ".avi",  ".amr", ".3gp", ".ac3", ".eac3", ".dts",  ".ape", ".wv",
    ".tta", ".mpc", ".ra",  ".g722", ".gsm", ".spx", ".flv", ".mpg",  ".mpeg", ".ogv", ".m2ts"};

std::string container_name(int format) {
  switch (format & SF_FORMAT_TYPEMASK) {
    case SF_FORMAT_WAV:
      return "WAV";
    case SF_FORMAT_WAVEX:
      return "WAVEX";
    case SF_FORMAT_RF64:
      return "RF64";
    case SF_FORMAT_W64:
      return "W64";
    case SF_FORMAT_AIFF:
      return "AIFF";
    case SF_FORMAT_AU:
      return "AU";
    case SF_FORMAT_CAF:
      return "CAF";
    case SF_FORMAT_FLAC:
      return "FLAC";
    case SF_FORMAT_OGG:
      return "OGG";
    case SF_FORMAT_MPEG:
      return "MPEG";
    default:
      return fmt::format("format {:#x}", format & SF_FORMAT_TYPEMASK);
  }
}

std::string encoding_name(int format) {
  switch (format & SF_FORMAT_SUBMASK) {
    case SF_FORMAT_PCM_S8:
    case SF_FORMAT_PCM_U8:
      return "8-bit";
    case SF_FORMAT_PCM_16:
      return "16-bit";
    case SF_FORMAT_PCM_24:
      return "24-bit";
    case SF_FORMAT_PCM_32:
      return "32-bit";
    case SF_FORMAT_FLOAT:
      return "float";
    case SF_FORMAT_DOUBLE:
      return "double";
    case SF_FORMAT_ULAW:
      return "u-law";
    case SF_FORMAT_ALAW:
      return "a-law";
    case SF_FORMAT_IMA_ADPCM:
    case SF_FORMAT_MS_ADPCM:
      return "ADPCM";
    case SF_FORMAT_VORBIS:
      return "Vorbis";
    case SF_FORMAT_OPUS:
      return "Opus";
    case SF_FORMAT_MPEG_LAYER_I:
    case SF_FORMAT_MPEG_LAYER_II:
      return "MP2";
    case SF_FORMAT_MPEG_LAYER_III:
      return "MP3";
    default:
      return fmt::format("encoding {:#x}", format & SF_FORMAT_SUBMASK);
  }
}

// libsndfile keeps the reason of a failed open in one global. Opens share this lock; whoever wants to know
// the reason opens again while holding it alone.
std::shared_mutex open_mutex;

// Header lengths that mean "not known": a FLAC made through a pipe says 0, other streams the largest number.
bool frames_unknown(const SF_INFO& info) {
  if (info.frames < 0 || info.frames == SF_COUNT_MAX) return true;
  return info.frames == 0 && (info.format & SF_FORMAT_TYPEMASK) == SF_FORMAT_FLAC;
}

bool length_is_estimate(const std::string& format) {
  return format.starts_with("MPEG");
}

}  // namespace

struct AudioReader::Handle {
  SNDFILE* file = nullptr;
  bool frames_known = true;

  ~Handle() {
    if (file != nullptr) sf_close(file);
  }
};

AudioReader::~AudioReader() = default;
AudioReader::AudioReader(AudioReader&&) noexcept = default;
AudioReader& AudioReader::operator=(AudioReader&&) noexcept = default;

namespace {

// The reason is asked for under a lock of its own, see open_mutex.
SNDFILE* open_sound_file(const std::string& path, SF_INFO& info) {
  info = SF_INFO{};
  {
    const std::shared_lock lock(open_mutex);
    if (SNDFILE* file = sf_open(path.c_str(), SFM_READ, &info)) return file;
  }
  const std::unique_lock lock(open_mutex);
  info = SF_INFO{};
  if (SNDFILE* file = sf_open(path.c_str(), SFM_READ, &info)) return file;
  std::string reason = sf_strerror(nullptr);
  while (!reason.empty() && (reason.back() == '.' || reason.back() == '\n')) reason.pop_back();
  fail("[audio] cannot read {}: {}; try playing it, or convert it again", path, reason);
}

// Through a file of ffmpeg's, which is gone with the handle.
SNDFILE* open_decoded(const std::string& path, SF_INFO& info) {
  const int decoded = decode_with_ffmpeg(path);
  info = SF_INFO{};
  const std::shared_lock lock(open_mutex);
  SNDFILE* file = sf_open_fd(decoded, SFM_READ, &info, SF_TRUE);
  if (file == nullptr) ::close(decoded);
  require(file != nullptr, "[audio] cannot read what ffmpeg made of {}", path);
  return file;
}

}  // namespace

AudioReader::AudioReader(const std::string& path) : path_(path), handle_(std::make_unique<Handle>()) {
  struct stat status {};
  const bool found = ::stat(path.c_str(), &status) == 0;  // before its reason is read
  require(found, "[audio] cannot open {}: {}", path, std::strerror(errno));
  // Pipes and devices would block or never end.
  require(S_ISREG(status.st_mode), "[audio] {} is not a regular file", path);
  require(status.st_size > 0, "[audio] {} is empty (0 bytes)", path);
  const bool through_ffmpeg = needs_ffmpeg(path);
  require(!through_ffmpeg || !find_ffmpeg().empty(),
          "[audio] {} is in a format that needs the program ffmpeg, which is not installed; try: apt install "
          "ffmpeg, or elsewhere: {}",
          path, ffmpeg_command(path));

  SF_INFO info{};
  handle_->file = through_ffmpeg ? open_decoded(path, info) : open_sound_file(path, info);
  require(info.channels >= 1 && info.channels <= kMostChannels,
          "[audio] expected 1 to {} channels in {}, got {}; the header may be damaged", kMostChannels, path,
          info.channels);
  require(info.samplerate >= 1 && info.samplerate <= kMostRateHz,
          "[audio] expected a rate of 1 to {} Hz in {}, got {}; the header may be damaged", kMostRateHz, path,
          info.samplerate);
  handle_->frames_known = !frames_unknown(info);
  require(
      through_ffmpeg || !handle_->frames_known || info.frames / kMostFramesPerByte <= status.st_size,
      "[audio] the header of {} claims {} frames, more than its {} bytes can hold; the file may be damaged",
      path, info.frames, static_cast<int64_t>(status.st_size));
  info_.frames = handle_->frames_known ? info.frames : 0;
  info_.rate_hz = info.samplerate;
  info_.channels = info.channels;
  info_.format = through_ffmpeg ? extension_of(path).substr(1) + " through ffmpeg"
                                : container_name(info.format) + "/" + encoding_name(info.format);

  if (!handle_->frames_known) {
    // Count by decoding with a second handle, so that this one stays at the beginning.
    SF_INFO count_info{};
    Handle counter;
    {
      const std::shared_lock lock(open_mutex);
      counter.file = sf_open(path.c_str(), SFM_READ, &count_info);
    }
    require(counter.file != nullptr && count_info.channels == info.channels, "[audio] cannot read {} twice",
            path);
    std::vector<float> chunk(static_cast<size_t>(kChunkFrames * info.channels));
    for (sf_count_t got = 0; (got = sf_readf_float(counter.file, chunk.data(), kChunkFrames)) > 0;) {
      info_.frames += got;
      require(info_.frames <= kMostCountedFrames,
              "[audio] {} does not say how long it is, and has more than {} frames; write it again", path,
              kMostCountedFrames);
    }
  }
}

void AudioReader::seek(int64_t frame) {
  require(frame >= 0 && frame <= info_.frames,
          "[audio] expected a beginning within the {} frames of {}, got {}", info_.frames, path_, frame);
  if (sf_seek(handle_->file, frame, SEEK_SET) == frame) return;
  // Not every stream can seek: start again and read up to the place.
  AudioReader again(path_);
  std::vector<float> chunk(static_cast<size_t>(kChunkFrames * info_.channels));
  for (int64_t left = frame; left > 0;) {
    const auto piece =
        std::span(chunk).first(static_cast<size_t>(std::min(left, kChunkFrames) * info_.channels));
    const int64_t got = again.read(piece);
    require(got > 0, "[audio] {} ends before frame {}; the file may be cut off", path_, frame);
    left -= got;
  }
  *this = std::move(again);
}

int64_t AudioReader::read(std::span<float> interleaved) {
  const auto wanted = static_cast<sf_count_t>(interleaved.size()) / info_.channels;
  const sf_count_t got = sf_readf_float(handle_->file, interleaved.data(), wanted);
  require(got >= 0 && got <= wanted, "[audio] cannot read {}: the decoder gave {} frames", path_, got);
  for (const float sample : interleaved.first(static_cast<size_t>(got * info_.channels)))
    require(std::isfinite(sample), "[audio] {} holds samples that are not finite numbers", path_);
  return got;
}

AudioInfo probe_audio(const std::string& path) {
  return AudioReader(path).info();
}

Audio read_audio(const std::string& path, int64_t begin_frame, int64_t frame_count) {
  require(frame_count >= -1, "[audio] expected a frame count of -1 (all) or more for {}, got {}", path,
          frame_count);
  AudioReader reader(path);
  const AudioInfo& info = reader.info();
  if (begin_frame != 0) reader.seek(begin_frame);
  const int64_t available = info.frames - begin_frame;
  const int64_t expected = frame_count < 0 ? available : std::min(frame_count, available);
  // The length of an MP3 may be an estimate, so there the end of the stream decides.
  const bool exact = !length_is_estimate(info.format);
  const int64_t limit = frame_count < 0 && !exact ? INT64_MAX : expected;

  Audio audio{{}, info.rate_hz, info.channels};
  std::vector<float> chunk(static_cast<size_t>(kChunkFrames * info.channels));
  int64_t done = 0;
  while (done < limit) {
    const auto piece =
        std::span(chunk).first(static_cast<size_t>(std::min(limit - done, kChunkFrames) * info.channels));
    const int64_t got = reader.read(piece);
    if (got == 0) break;
    audio.samples.insert(audio.samples.end(), piece.begin(), piece.begin() + got * info.channels);
    done += got;
  }
  require(!exact || done == expected,
          "[audio] {} ends at frame {} but its header says {}; the file may be cut off", path,
          begin_frame + done, info.frames);
  return audio;
}

std::vector<float> downmix(const Audio& audio) {
  if (audio.channels == 1) return audio.samples;
  const auto channels = static_cast<size_t>(audio.channels);
  std::vector<float> mono(static_cast<size_t>(audio.frames()));
  for (size_t frame = 0; frame < mono.size(); ++frame) {
    float sum = 0;
    for (size_t channel = 0; channel < channels; ++channel) sum += audio.samples[frame * channels + channel];
    mono[frame] = sum / static_cast<float>(channels);
  }
  return mono;
}

namespace {

int format_for_writing(const std::string& path) {
  const std::string extension = extension_of(path);
  if (extension == ".wav") return SF_FORMAT_WAV | SF_FORMAT_FLOAT;
  if (extension == ".flac") return SF_FORMAT_FLAC | SF_FORMAT_PCM_24;
  if (extension == ".ogg") return SF_FORMAT_OGG | SF_FORMAT_VORBIS;
  if (extension == ".opus") return SF_FORMAT_OGG | SF_FORMAT_OPUS;
  if (extension == ".mp3") return SF_FORMAT_MPEG | SF_FORMAT_MPEG_LAYER_III;
  fail("[audio] expected a name that ends in .wav, .flac, .ogg, .opus or .mp3, got {}", path);
}

}  // namespace

struct AudioWriter::State {
  explicit State(const std::string& path) : file(path) {}
  ~State() {
    if (sound != nullptr) sf_close(sound);
  }
  AtomicFile file;
  SNDFILE* sound = nullptr;
  int channels = 1;
  std::vector<float> chunk;
};

AudioWriter::AudioWriter(const std::string& path, int rate_hz, int channels, int64_t expected_frames) {
  require(channels >= 1 && channels <= kMostChannels, "[audio] expected 1 to {} channels for {}, got {}",
          kMostChannels, path, channels);
  require(rate_hz >= 1 && rate_hz <= kMostRateHz, "[audio] expected a rate of 1 to {} Hz for {}, got {}",
          kMostRateHz, path, rate_hz);
  SF_INFO info{};
  info.samplerate = rate_hz;
  info.channels = channels;
  info.format = format_for_writing(path);
  constexpr int64_t kLargestWav = 4'000'000'000;
  if (extension_of(path) == ".wav" && expected_frames > kLargestWav / 4 / channels)
    info.format = SF_FORMAT_RF64 | SF_FORMAT_FLOAT;
  require(sf_format_check(&info) != 0, "[audio] a {} file cannot hold {} channels at {} Hz: {}; try .wav",
          extension_of(path), channels, rate_hz, path);
  state_ = std::make_unique<State>(path);
  state_->channels = channels;
  std::string reason;
  {
    const std::unique_lock lock(open_mutex);
    state_->sound = sf_open(state_->file.temporary_path().c_str(), SFM_WRITE, &info);
    if (state_->sound == nullptr) reason = sf_strerror(nullptr);
  }
  require(state_->sound != nullptr, "[audio] cannot write {}: {}", path, reason);
  // The PEAK chunk holds the time of writing, and the same samples should give the same bytes.
  sf_command(state_->sound, SFC_SET_ADD_PEAK_CHUNK, nullptr, SF_FALSE);
  sf_command(state_->sound, SFC_SET_CLIPPING, nullptr, SF_TRUE);
}

AudioWriter::~AudioWriter() = default;
AudioWriter::AudioWriter(AudioWriter&&) noexcept = default;

void AudioWriter::write(std::span<const float> interleaved) {
  const std::string& path = state_->file.path();
  require(interleaved.size() % static_cast<size_t>(state_->channels) == 0,
          "[audio] expected whole frames of {} channels for {}, got {} samples", state_->channels, path,
          interleaved.size());
  // In pieces: the Vorbis encoder keeps a whole call on its stack.
  std::vector<float>& chunk = state_->chunk;
  const size_t step = static_cast<size_t>(4096 * state_->channels);
  for (size_t begin = 0; begin < interleaved.size(); begin += step) {
    const auto piece = interleaved.subspan(begin, std::min(step, interleaved.size() - begin));
    chunk.assign(piece.begin(), piece.end());
    for (float& sample : chunk) {
      require(std::isfinite(sample), "[audio] cannot write {}: it has samples that are not finite numbers",
              path);
      sample = std::clamp(sample, -1.0f, 1.0f);
    }
    const auto wrote = sf_write_float(state_->sound, chunk.data(), static_cast<sf_count_t>(chunk.size()));
    require(wrote == static_cast<sf_count_t>(chunk.size()), "[audio] cannot write {}: {}", path,
            sf_strerror(state_->sound));
  }
}

void AudioWriter::commit() {
  // Encoders write their last block here, and a full disk may show only now.
  const int code = sf_close(std::exchange(state_->sound, nullptr));
  require(code == 0, "[audio] cannot write {}: {}", state_->file.path(), sf_error_number(code));
  state_->file.commit();
}

void write_audio(const std::string& path, std::span<const float> interleaved, int rate_hz, int channels) {
  AudioWriter writer(path, rate_hz, channels);
  writer.write(interleaved);
  writer.commit();
}

bool is_audio_extension(const std::string& path) {
  return contains(kReadable, extension_of(path)) || (needs_ffmpeg(path) && !find_ffmpeg().empty());
}

bool needs_ffmpeg(const std::string& path) {
  return contains(kFfmpegOnly, extension_of(path));
}

std::string ffmpeg_command(const std::string& path) {
  const auto quoted = [](const std::string& word) {
    std::string out = "'";
    for (const char c : word) out += c == '\'' ? std::string("'\\''") : std::string(1, c);
    return out + "'";
  };
  return fmt::format("ffmpeg -i {} {}", quoted(path),
                     quoted(std::filesystem::path(path).replace_extension(".flac").string()));
}

}  // namespace melete
