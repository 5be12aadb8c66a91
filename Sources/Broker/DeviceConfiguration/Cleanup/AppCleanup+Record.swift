extension AppCleanup.Start: Codable {}
extension AdapterPreset: Codable {}

/// The form of a cleanup in the adapter's own record, which outlives the manifest. It is complete, so that an unchanged
/// manifest is recognised.
extension AppCleanup: Codable {
    private enum Key: String, CodingKey {
        case user, unit, flatpak, command, processes, delete, start, data, preset
    }

    /// Asks the system for the user, and so may block.
    public init(from decoder: any Decoder) throws {
        let values = try decoder.container(keyedBy: Key.self)
        let number = try values.decode(UInt32.self, forKey: .user)
        // As in a manifest: root's files are never deleted, even if the record was altered.
        guard number != 0 else {
            throw DecodingError.dataCorruptedError(forKey: .user, in: values, debugDescription: "root takes no part")
        }
        let programs: [Program] = [
            try values.decodeIfPresent(String.self, forKey: .unit).map(Program.unit),
            try values.decodeIfPresent(String.self, forKey: .flatpak).map(Program.flatpak),
            try values.decodeIfPresent([String].self, forKey: .command).map(Program.command),
            try values.decodeIfPresent(String.self, forKey: .processes).map(Program.processes),
        ]
        .compactMap { $0 }
        guard programs.count == 1, let program = programs.first else {
            throw DecodingError.dataCorruptedError(forKey: .unit, in: values, debugDescription: "not one program")
        }
        self.init(
            cleaner: .adapter,
            program: program,
            user: try SystemUser(number: number),
            delete: try values.decode([String].self, forKey: .delete),
            start: try values.decodeIfPresent(Start.self, forKey: .start),
            data: try values.decodeIfPresent(String.self, forKey: .data),
            preset: try values.decodeIfPresent(AdapterPreset.self, forKey: .preset)
        )
    }

    public func encode(to encoder: any Encoder) throws {
        var values = encoder.container(keyedBy: Key.self)
        try values.encode(user.number, forKey: .user)
        switch program {
        case .unit(let name): try values.encode(name, forKey: .unit)
        case .flatpak(let name): try values.encode(name, forKey: .flatpak)
        case .command(let words): try values.encode(words, forKey: .command)
        case .processes(let path): try values.encode(path, forKey: .processes)
        }
        try values.encode(delete, forKey: .delete)
        try values.encodeIfPresent(start, forKey: .start)
        try values.encodeIfPresent(data, forKey: .data)
        try values.encodeIfPresent(preset, forKey: .preset)
    }
}
