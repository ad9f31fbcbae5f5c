// Audio files through libsndfile: what is in one, any segment of it, and writing one. Headers are never
// trusted for allocation: memory grows only with the samples that were really decoded.
#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <vector>

namespace melete {

struct AudioInfo {
  int64_t frames = 0;  // samples per channel
  int rate_hz = 0;
  int channels = 0;
  std::string format;  // "WAV/float", "FLAC/24-bit", "OGG/Vorbis"

  double seconds() const { return rate_hz > 0 ? static_cast<double>(frames) / rate_hz : 0.0; }
};

struct Audio {
  std::vector<float> samples;  // interleaved: [frames, channels]
  int rate_hz = 0;
  int channels = 0;

  int64_t frames() const { return channels > 0 ? static_cast<int64_t>(samples.size()) / channels : 0; }
};

// An open file, read from front to back in pieces. Every failure is an Error that names the path.
class AudioReader {
 public:
  explicit AudioReader(const std::string& path);
  ~AudioReader();
  AudioReader(AudioReader&&) noexcept;
  AudioReader& operator=(AudioReader&&) noexcept;

  const AudioInfo& info() const { return info_; }
  void seek(int64_t frame);
  // Fills at most `interleaved.size() / channels` frames and returns how many; 0 at the end. Refuses samples
  // that are not finite.
  int64_t read(std::span<float> interleaved);

 private:
  struct Handle;
  std::string path_;
  AudioInfo info_;
  std::unique_ptr<Handle> handle_;
};

AudioInfo probe_audio(const std::string& path);

// Reads `frame_count` frames from `begin_frame` on (-1: to the end) by seeking; fewer when the file ends
// before that. A file that ends before its own header says so is an Error, as is a beginning past the end.
Audio read_audio(const std::string& path, int64_t begin_frame = 0, int64_t frame_count = -1);

// Mean of the channels.
std::vector<float> downmix(const Audio& audio);

// The format follows the extension: .wav (32-bit float), .flac (24-bit), .ogg (Vorbis), .opus, .mp3. Samples
// are clamped to [-1, 1]; the same samples give the same bytes for .wav and .flac. The file appears whole or
// not at all.
void write_audio(const std::string& path, std::span<const float> interleaved, int rate_hz, int channels = 1);

// The same piece by piece, for sounds that do not fit into memory.
class AudioWriter {
 public:
  // expected_frames: a .wav beyond 4 GB becomes an RF64 file, which most programs read; 0 when unknown.
  AudioWriter(const std::string& path, int rate_hz, int channels = 1, int64_t expected_frames = 0);
  ~AudioWriter();  // without commit() nothing is left behind
  AudioWriter(AudioWriter&&) noexcept;

  void write(std::span<const float> interleaved);
  void commit();

 private:
  struct State;
  std::unique_ptr<State> state_;
};

bool is_audio_extension(const std::string& path);  // a format that read_audio understands
bool needs_ffmpeg(const std::string& path);        // audio that ffmpeg has to convert first: m4a, webm, ...
std::string ffmpeg_command(const std::string& path);  // the command that converts it, ready to paste

}  // namespace melete
