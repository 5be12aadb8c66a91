import DBus

extension ProviderCheckStep {
    /// The steps as the response to ``IdentityProtocol/checkMethod``.
    public static func fields(_ steps: [ProviderCheckStep]) -> IdentityFields {
        let elements = steps.map { step in
            DBusValue.fields([
                "name": .string(step.name.rawValue), "outcome": .string(step.outcome.rawValue),
                "text": .string(step.text),
            ])
        }
        return IdentityFields(["steps": .array(elements, of: "a{sv}")])
    }

    /// - Throws: `IdentityError` if the response is malformed.
    public static func steps(_ fields: IdentityFields) throws(IdentityError) -> [ProviderCheckStep] {
        guard let elements = fields.values["steps"]?.elementsValue else { throw .malformed("steps") }
        var steps: [ProviderCheckStep] = []
        for element in elements {
            guard let values = element.fieldsValue else { throw .malformed("steps") }
            let step = IdentityFields(values)
            steps.append(
                ProviderCheckStep(
                    try step.word("name", Name.self),
                    try step.word("outcome", Outcome.self),
                    try step.text("text")
                )
            )
        }
        return steps
    }
}
